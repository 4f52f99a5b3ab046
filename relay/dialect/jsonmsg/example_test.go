package jsonmsg_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/jsonmsg"
	"github.com/sotto-relay/sotto/transport"
)

// A client that writes to bob and prints what he answers. Its relay runs in the same
// process; with one elsewhere, dial is ws.Dialer("wss://relay.example/json", nil),
// tcp.Dialer("relay.example:7700", jsonmsg.Framing{}, nil) or
// udp.Dialer("relay.example:7700", nil).
func ExampleConnect() {
	ctx := context.Background()
	dial := startJSONRelay()
	defer startBob(dial)()

	c, err := jsonmsg.Connect(ctx, dial, &jsonmsg.ClientOptions{Address: "alice"})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if err := c.Send(ctx, "bob", "m1", []byte("hello")); err != nil {
		log.Fatal(err)
	}
	for event, err := range c.Events(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		switch e := event.(type) {
		case *jsonmsg.PeerKey:
			fmt.Println("first contact with", e.Peer)
		case *jsonmsg.Ack:
			fmt.Println(e.From, "has", e.ID)
		case *jsonmsg.Unreadable:
			fmt.Println("not to be opened:", e.Err)
		case *jsonmsg.Message:
			fmt.Printf("%s says: %s\n", e.From, e.Data)
			return
		}
	}
	// Output:
	// first contact with bob
	// bob has m1
	// bob says: you said: hello
}

// A room whose members have been given a key.
func ExampleSharedKey() {
	ctx := context.Background()
	dial := startJSONRelay()
	key, err := jsonmsg.NewSharedKey([]byte("32 random bytes that all share. "))
	if err != nil {
		log.Fatal(err)
	}
	var clients [2]*jsonmsg.Client
	for i, name := range []string{"alice", "bob"} {
		c, err := jsonmsg.Connect(ctx, dial, &jsonmsg.ClientOptions{Address: name})
		if err != nil {
			log.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Join(ctx, "lobby"); err != nil {
			log.Fatal(err)
		}
		clients[i] = c
	}

	ct, err := key.Seal("lobby", []byte("hello, all"))
	if err != nil {
		log.Fatal(err)
	}
	if err := clients[0].SendRoom(ctx, "lobby", ct); err != nil {
		log.Fatal(err)
	}
	for event := range clients[1].Events(ctx) {
		if m, ok := event.(*jsonmsg.RoomMessage); ok {
			text, err := key.Open(m.Room, m.CT)
			fmt.Printf("%s: %s, %v\n", m.From, text, err)
			return
		}
	}
	// Output: alice: hello, all, <nil>
}

// What a relay refuses with can be told apart.
func ExampleReason() {
	_, err := jsonmsg.Connect(context.Background(), startJSONRelay(), &jsonmsg.ClientOptions{Address: "two\nlines"})
	fmt.Println(err, errors.Is(err, jsonmsg.ErrInvalidAddr))
	// Output: json: the relay says "invalid addr" true
}

// startJSONRelay starts a relay in memory, which needs no end but that of its
// connections, and returns the way to it.
func startJSONRelay() transport.Dialer {
	server := new(relay.Server)
	return func(context.Context) (transport.Conn, error) { return server.Dial(jsonmsg.Dialect{}), nil }
}

// startBob starts a client that answers, and returns the way to stop it.
func startBob(dial transport.Dialer) (stop func()) {
	ctx := context.Background()
	c, err := jsonmsg.Connect(ctx, dial, &jsonmsg.ClientOptions{Address: "bob"})
	if err != nil {
		log.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for event := range c.Events(ctx) {
			if m, ok := event.(*jsonmsg.Message); ok {
				_ = c.Ack(ctx, m)
				_ = c.Send(ctx, m.From, "", append([]byte("you said: "), m.Data...))
			}
		}
	})
	return func() {
		_ = c.Close()
		running.Wait()
	}
}
