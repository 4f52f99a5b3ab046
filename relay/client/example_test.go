package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/client"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport"
)

// A client that says hello and prints the answer. Its relay runs in the same
// process; with one elsewhere, dial is ws.Dialer("wss://relay.example", nil).
func Example() {
	ctx := context.Background()
	dial, me, friend := startRelay(), newIdentity(), newIdentity()
	defer startEcho(dial, friend)()

	c, err := client.New(ctx, &client.Config{Identity: me, Dial: dial})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Send(ctx, friend.Public(), client.Text("hello")); err != nil {
		log.Fatal(err)
	}
	for letter, err := range c.Messages(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%v: %s\n", letter.Protection, letter.Text())
		break
	}
	// Output: sealed: you said: hello
}

// A service that answers every letter, from where it takes it, until it is closed.
func ExampleClient_Handle() {
	ctx := context.Background()
	c, err := client.New(ctx, &client.Config{Identity: newIdentity(), Dial: startRelay()})
	if err != nil {
		log.Fatal(err)
	}
	answer := func(ctx context.Context, l *client.Letter) error {
		_, err := c.Send(ctx, l.From, client.Text("you said: "+l.Text()))
		return err
	}
	c.Close() // somewhere else
	fmt.Println(c.Handle(ctx, answer))
	// Output: client: closed
}

// A service that handles the letters of ten senders at once, those of each in order.
func ExampleConcurrently() {
	ctx := context.Background()
	dial, me := startRelay(), newIdentity()
	c, err := client.New(ctx, &client.Config{Identity: me, Dial: dial})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for range 2 {
		sender, err := client.New(ctx, &client.Config{Identity: newIdentity(), Dial: dial})
		if err != nil {
			log.Fatal(err)
		}
		defer sender.Close()
		if _, err := sender.Send(ctx, me.Public(), client.Text("hello")); err != nil {
			log.Fatal(err)
		}
	}
	var both sync.WaitGroup
	both.Add(2)
	enough := errors.New("enough")
	err = c.Handle(ctx, func(context.Context, *client.Letter) error {
		both.Done()
		both.Wait() // the other one is being handled too
		return enough
	}, client.Concurrently(10))
	fmt.Println(err)
	// Output: enough
}

// A program that notes a message while there is no network and ends, and is started
// again. The store would be that of disk.Open(directory, nil) (package inbox/disk).
func ExampleConfig_store() {
	ctx := context.Background()
	dial, me, friend := startRelay(), newIdentity(), newIdentity()
	defer startEcho(dial, friend)()
	store := inbox.NewMemoryState(nil)

	c, err := client.New(ctx, &client.Config{
		Identity: me, Store: store, StartOffline: true,
		Dial: func(context.Context) (transport.Conn, error) { return nil, errors.New("no network") },
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Send(ctx, friend.Public(), client.Text("later"), client.NoWait()); err != nil {
		log.Fatal(err)
	}
	c.Close()

	c, err = client.New(ctx, &client.Config{Identity: me, Store: store, Dial: dial})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for letter, err := range c.Messages(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(letter.Text())
		break
	}
	// Output: you said: later
}

// startRelay starts a relay in memory, which needs no end but that of its
// connections, and returns the way to it.
func startRelay() transport.Dialer {
	server, dialect := new(relay.Server), brep.Dialect{Identity: newIdentity()}
	return func(context.Context) (transport.Conn, error) { return server.Dial(dialect), nil }
}

// startEcho starts a client that answers, and returns the way to stop it.
func startEcho(dial transport.Dialer, id *crypto.Identity) (stop func()) {
	ctx := context.Background()
	c, err := client.New(ctx, &client.Config{Identity: id, Dial: dial})
	if err != nil {
		log.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		_ = c.Handle(ctx, func(ctx context.Context, l *client.Letter) error {
			_, err := c.Send(ctx, l.From, client.Text("you said: "+l.Text()))
			return err
		})
	})
	return func() {
		_ = c.Close()
		running.Wait()
	}
}

func newIdentity() *crypto.Identity {
	id, err := crypto.GenerateIdentity()
	if err != nil {
		log.Fatal(err)
	}
	return id
}
