// Embed is a service with a relay in it: one mux has the service's own handler
// and the relay beside it. It runs to its end by itself: a visitor asks the
// service something, and two of them talk through the relay.
//
//	go run ./examples/embed
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/client"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport/ws"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	slog.SetLogLoggerLevel(slog.LevelWarn) // a first contact with a relay is no news here
	if err := run(ctx, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	// The relay: an identity, where messages wait, and a place in the mux.
	id, err := crypto.GenerateIdentity() // a service keeps one: LoadOrCreateIdentity
	if err != nil {
		return err
	}
	srv := &relay.Server{Inbox: inbox.NewMemory(nil), Logger: slog.New(slog.DiscardHandler)}
	defer srv.Close()
	mux := http.NewServeMux()
	mux.Handle("/relay", ws.Handler(srv.Speak(brep.Dialect{Identity: id}), nil))

	// The service.
	mux.HandleFunc("/hello", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "hello, %d are connected to the relay", srv.Stats().Sessions)
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	service := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- service.Serve(l) }()

	err = errors.Join(
		visit(ctx, out, l.Addr().String(), id.Public()),
		service.Shutdown(ctx), // what is not a relay's
		srv.Shutdown(ctx),     // and what is
	)
	if e := <-served; e != http.ErrServerClosed {
		err = errors.Join(err, e)
	}
	return err
}

// visit does what people would do with the service.
func visit(ctx context.Context, out io.Writer, host string, relayKey crypto.PublicKey) error {
	login := func(id *crypto.Identity) (*client.Client, error) {
		return client.New(ctx, &client.Config{
			Identity: id,
			Dial:     ws.Dialer("ws://"+host+"/relay", nil),
			Relay:    &relayKey,
		})
	}
	annID, errAnn := crypto.GenerateIdentity()
	bobID, errBob := crypto.GenerateIdentity()
	if err := errors.Join(errAnn, errBob); err != nil {
		return err
	}

	ann, err := login(annID)
	if err != nil {
		return err
	}
	defer ann.Close()
	receipt, err := ann.Send(ctx, bobID.Public(), client.Text("see you at noon"))
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "ann writes to bob, who is away:", receipt.Status)
	if err := get(ctx, out, "http://"+host+"/hello"); err != nil {
		return err
	}

	bob, err := login(bobID)
	if err != nil {
		return err
	}
	defer bob.Close()
	for letter, err := range bob.Messages(ctx) {
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "bob comes, and reads: %q (%v)\n", letter.Text(), letter.Protection)
		break
	}
	return nil
}

// get shows what the service has to say.
func get(ctx context.Context, out io.Writer, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Fprintf(out, "the service says: %s\n", body)
	return err
}
