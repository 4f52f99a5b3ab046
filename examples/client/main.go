// Client sends a message and gets an answer, through a relay that can read
// neither. It runs to its end by itself, with a relay of its own; what it takes
// to be a client is in greet.
//
//	go run ./examples/client
package main

import (
	"context"
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

// greet says hello to somebody and returns the answer.
func greet(ctx context.Context, id *crypto.Identity, url string, to crypto.PublicKey) (string, error) {
	c, err := client.New(ctx, &client.Config{Identity: id, Dial: ws.Dialer(url, nil)})
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := c.Send(ctx, to, client.Text("hello")); err != nil {
		return "", err
	}
	for letter, err := range c.Messages(ctx) {
		if err != nil {
			return "", err
		}
		if letter.From == to {
			return letter.Text(), nil
		}
	}
	return "", nil // not reached: Messages ends with an error
}

// answer answers whoever writes, until ctx ends.
func answer(ctx context.Context, id *crypto.Identity, url string) error {
	c, err := client.New(ctx, &client.Config{Identity: id, Dial: ws.Dialer(url, nil)})
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Handle(ctx, func(ctx context.Context, l *client.Letter) error {
		_, err := c.Send(ctx, l.From, client.Text(l.Text()+" to you"))
		return err
	})
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	slog.SetLogLoggerLevel(slog.LevelWarn) // a first contact with a relay is no news here
	if err := run(ctx, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	var ids [3]*crypto.Identity
	for i := range ids {
		id, err := crypto.GenerateIdentity()
		if err != nil {
			return err
		}
		ids[i] = id
	}
	ann, bob, relayID := ids[0], ids[1], ids[2]

	srv := &relay.Server{Inbox: inbox.NewMemory(nil), Logger: slog.New(slog.DiscardHandler)}
	defer srv.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	hs := &http.Server{
		Handler:           ws.Handler(srv.Speak(brep.Dialect{Identity: relayID}), nil),
		ReadHeaderTimeout: 5 * time.Second,
	}
	defer hs.Close()
	go func() { _ = hs.Serve(l) }() // until Close
	url := "ws://" + l.Addr().String()

	ctx, cancel := context.WithCancel(ctx)
	answered := make(chan error, 1)
	go func() { answered <- answer(ctx, bob, url) }()
	text, err := greet(ctx, ann, url, bob.Public())
	cancel()
	<-answered
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "bob (%s) answers: %q\n", bob.Public().Fingerprint(), text)
	return nil
}
