package brep_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport/ws"
)

// A relay on the mux of a service, beside its other handlers.
func Example() {
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", hello)

	id, err := crypto.GenerateIdentity() // a service keeps one: LoadOrCreateIdentity
	if err != nil {
		log.Fatal(err)
	}
	srv := &relay.Server{Inbox: inbox.NewMemory(nil)}
	defer srv.Close()
	mux.Handle("/relay", ws.Handler(srv.Speak(brep.Dialect{Identity: id}), nil))

	web := httptest.NewServer(mux) // elsewhere an http.Server with timeouts
	defer web.Close()
	fmt.Println(version(web.URL, id.Public()))
	// Output: logged in, handshake v2
}

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }

// version logs in at a relay with a key.
func version(url string, key crypto.PublicKey) string {
	id, err := crypto.GenerateIdentity()
	if err != nil {
		return err.Error()
	}
	conn, err := ws.Dialer(strings.Replace(url, "http", "ws", 1)+"/relay", nil)(context.Background())
	if err != nil {
		return err.Error()
	}
	c, err := brep.Connect(context.Background(), conn, &brep.ClientOptions{Identity: id, Expect: &key})
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	return fmt.Sprint("logged in, handshake v", c.Relay().Version)
}
