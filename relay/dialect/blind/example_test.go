package blind_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/blind"
	"github.com/sotto-relay/sotto/relay/dialect/blind/audit"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/ws"
)

// The dialect without sockets, for a test of what runs on top of it: connections
// are pipes, and have the ids that the test wants to read in the audit log.
func Example() {
	names := map[uint64]string{1: "alice", 2: "bob"} // in the order of Dial
	deliveries := new(audit.Log)
	dialect := blind.Dialect{
		Audit:  deliveries,
		ConnID: func(c relay.ConnInfo) string { return names[c.ID] },
	}
	srv := new(relay.Server)
	defer srv.Close()
	alice, bob := srv.Dial(dialect), srv.Dial(dialect)

	control := func(c transport.Conn, json string) { write(c, append([]byte{0}, json...)) }
	control(bob, `{"op":"subscribe","entityIds":["doc"]}`)
	control(bob, `{"op":"rotate","from":"doc","to":"doc2"}`) // which is answered, when bob has subscribed
	fmt.Printf("bob hears %s\n", read(bob)[1:])

	header := frame.BlindHeader{Kind: frame.BlindUpdate, EntityID: "doc", Sender: "phone", Seq: 1, Nonce: "AAAA", TS: 1700000000000}
	write(alice, frame.AppendBlind([]byte{1}, header.Append(nil), []byte("signature"), []byte("ciphertext")))
	f, err := frame.ParseBlind(read(bob)[1:])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("bob hears %s of %s\n", f.Ciphertext, f.Header.EntityID)

	for _, d := range deliveries.Recent() {
		fmt.Println("delivered from", d.From, "to", d.To, "about", d.Entity, "of", d.Bytes, "bytes")
	}
	// Output:
	// bob hears {"op":"rotated","from":"doc","to":"doc2"}
	// bob hears ciphertext of doc
	// delivered from alice to bob about doc2 of 128 bytes
}

func write(c transport.Conn, msg []byte) {
	if _, err := c.Write(transport.Binary, [][]byte{msg}); err != nil { // a pipe with room takes it at once
		log.Fatal(err)
	}
}

func read(c transport.Conn) []byte {
	_, msg, err := c.Read()
	if err != nil {
		log.Fatal(err)
	}
	return msg
}

// relayHandler serves everything that a Brainstorm client asks a relay for.
func relayHandler(srv *relay.Server, d blind.Dialect) http.Handler {
	upgrade := ws.Handler(srv.Speak(d), nil)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" && r.Method == http.MethodGet && r.Header.Get("Upgrade") == "" {
			fmt.Fprintln(w, "This is a blind relay.")
			return
		}
		upgrade.ServeHTTP(w, r)
	})
	return mux
}

// The relay in a web server, with its two answers to those that are no clients.
func Example_http() {
	srv := new(relay.Server)
	defer srv.Close()
	web := httptest.NewServer(relayHandler(srv, blind.Dialect{})) // elsewhere an http.Server with timeouts
	defer web.Close()
	for _, path := range []string{"/", "/healthz"} {
		resp, err := http.Get(web.URL + path)
		if err != nil {
			log.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Printf("%d %s", resp.StatusCode, text)
		if err != nil {
			log.Fatal(err)
		}
	}
	http.DefaultClient.CloseIdleConnections()

	c, err := ws.Dialer(strings.Replace(web.URL, "http", "ws", 1)+"/", nil)(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(transport.CloseNormal, "")
	write(c, []byte("\x00"+`{"op":"rotate","from":"a","to":"b"}`))
	fmt.Printf("%s\n", read(c)[1:])
	// Output:
	// 200 This is a blind relay.
	// 200 ok
	// {"op":"rotated","from":"a","to":"b"}
}

// device connects a device to a relay, and hands what the others send to show.
func device(ctx context.Context, dial transport.Dialer, sealer blind.Sealer, name, key string, show func(string)) error {
	c := blind.NewClient(blind.ClientConfig{Dial: dial, Sealer: sealer, Sender: name})
	defer c.Close()
	c.Subscribe(key)
	for {
		e, err := c.Receive(ctx)
		switch {
		case err != nil: // ctx has ended; all else is tried again
			return err
		case e.Connected: // what was sent meanwhile is missed: ask the others
			m := blind.Message{Kind: frame.BlindAwareness, EntityID: key, Data: []byte("who has more?")}
			if err := c.Send(ctx, m); err != nil {
				return err
			}
		case e.Err == nil: // else it could not be opened
			show(e.Header.Sender + ": " + string(e.Data))
		}
	}
}

// clear seals nothing. (See examples/devicesync for Ed25519 and AES-256-GCM.)
type clear struct{}

func (clear) Nonce() string { return "none" }

func (clear) Seal(_ *frame.BlindHeader, _, data []byte) (signature, ciphertext []byte, err error) {
	return nil, data, nil
}

func (clear) Open(f *frame.BlindFrame) ([]byte, error) { return f.Ciphertext, nil }

// Two devices over pipes.
func ExampleClient() {
	srv := new(relay.Server)
	defer srv.Close()
	dial := func(context.Context) (transport.Conn, error) { return srv.Dial(blind.Dialect{}), nil }
	ctx, cancel := context.WithCancel(context.Background())
	heard := make(chan string, 10)
	var devices sync.WaitGroup
	for _, name := range []string{"laptop", "phone"} {
		devices.Go(func() { _ = device(ctx, dial, clear{}, name, "k3yd0c", func(text string) { heard <- text }) })
	}
	fmt.Println(strings.TrimPrefix(strings.TrimPrefix(<-heard, "laptop"), "phone")) // of whichever came second
	cancel()
	devices.Wait()
	// Output: : who has more?
}
