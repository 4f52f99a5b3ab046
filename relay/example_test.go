package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/client"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport/pipe"
)

// A relay with a policy of its own, on a network in memory: a test of what is built
// on it needs neither a port nor a sleep. With a listener of package tcp or a handler
// of package ws in the place of the pipe, the rest stays as it is.
func ExampleServer() {
	ctx := context.Background()
	id, ann, bob := generate(), generate(), generate()

	srv := &relay.Server{
		Inbox: inbox.NewMemory(nil), // or the Inbox of a disk.DB, or a Store of one's own
		Policy: relay.Policy{
			Send: func(_ context.Context, m relay.SendInfo) error {
				if m.Size > 1024 {
					return &relay.Refusal{Code: relay.CodeDenied}
				}
				return nil
			},
		},
		Logger: slog.New(slog.DiscardHandler),
	}
	network := pipe.Listen()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(network, brep.Dialect{Identity: id}) }()

	relayKey := id.Public()
	c, err := client.New(ctx, &client.Config{Identity: ann, Dial: network.Dial, Relay: &relayKey})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	receipt, err := c.Send(ctx, bob.Public(), client.Text("short"))
	fmt.Println(receipt.Status, err)
	var refused *client.RefusedError
	_, err = c.Send(ctx, bob.Public(), client.Raw(make([]byte, 4096)))
	fmt.Println(errors.As(err, &refused), err)

	fmt.Println(srv.Stats().Held, "waits for bob")
	if err := srv.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-served)
	// Output:
	// stored <nil>
	// true client: refused: denied
	// 1 waits for bob
	// relay: server closed
}

func generate() *crypto.Identity {
	id, err := crypto.GenerateIdentity()
	if err != nil {
		log.Fatal(err)
	}
	return id
}
