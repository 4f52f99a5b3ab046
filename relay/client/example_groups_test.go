package client_test

import (
	"context"
	"fmt"
	"log"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay/client"
)

// A group of two: what one publishes the other reads, and the relay sees neither what
// it says nor the name of the topic.
func ExampleGroup() {
	ctx := context.Background()
	dial, me, friend := startRelay(), newIdentity(), newIdentity()
	a, err := client.New(ctx, &client.Config{Identity: me, Dial: dial})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	b, err := client.New(ctx, &client.Config{
		Identity: friend, Dial: dial,
		Groups: func(owner crypto.PublicKey, _ crypto.GroupID) bool { return owner == me.Public() },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()

	group, err := a.NewGroup(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := group.Add(ctx, friend.Public()); err != nil {
		log.Fatal(err)
	}
	same := b.Group(me.Public(), group.ID()) // the friend was told the id
	for epoch, changed := same.Epoch(); epoch == 0; epoch, changed = same.Epoch() {
		<-changed
	}
	doors, err := b.Subscribe(ctx, "home/doors/+", same.Reading(client.NamesBlinded))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := a.Publish(ctx, "home/doors/front", []byte("open"), group.Writing(client.NamesBlinded)); err != nil {
		log.Fatal(err)
	}
	for p, err := range doors.Messages(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s, by me: %v\n", p.Data, p.From == me.Public())
		break
	}
	// Output: open, by me: true
}

// Somebody is added as a contact from a text or a picture that came another way, and
// cannot be told from then on to have no card.
func ExampleClient_Pair() {
	ctx := context.Background()
	dial, me, friend := startRelay(), newIdentity(), newIdentity()
	defer startEcho(dial, friend)()

	shown := crypto.Pairing{Key: friend.Public(), Host: "relay.example", TLS: true, Card: 1}.String()
	pairing, err := crypto.ParsePairing(shown)
	if err != nil {
		log.Fatal(err)
	}
	c, err := client.New(ctx, &client.Config{Identity: me, Dial: dial}) // ws.Dialer(pairing.URL(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if err := c.Pair(ctx, pairing); err != nil {
		log.Fatal(err)
	}
	fmt.Println(pairing.URL(), c.Pairing().Card > 0)
	// Output: wss://relay.example true
}
