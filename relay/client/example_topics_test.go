package client_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay/client"
	"github.com/sotto-relay/sotto/transport"
)

// A sensor that publishes what it measures, and one who looks at all sensors. He
// gets the last value of each first, and after a gap all of them again.
func ExampleClient_Subscribe() {
	ctx, dial := context.Background(), startRelay()
	sensor, viewer := connect(dial, newIdentity()), connect(dial, newIdentity())
	defer sensor.Close()
	defer viewer.Close()
	measure := func(where, value string) {
		if _, err := sensor.Publish(ctx, "sensors/"+where, []byte(value), client.Retain()); err != nil {
			log.Fatal(err)
		}
	}

	measure("attic", "23.5")
	sub, err := viewer.Subscribe(ctx, "sensors/#")
	if err != nil {
		log.Fatal(err)
	}
	defer sub.Close()
	for p, err := range sub.Messages(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if p.Gap {
			fmt.Println("something may be missing")
			continue
		}
		fmt.Printf("%s: %s (retained: %v)\n", p.Topic, p.Data, p.Retained)
		if !p.Retained {
			break
		}
		measure("cellar", "11.0")
	}
	// Output:
	// sensors/attic: 23.5 (retained: true)
	// sensors/cellar: 11.0 (retained: false)
}

// Two people in a room.
func ExampleClient_JoinRoom() {
	ctx, dial := context.Background(), startRelay()
	alice, bob := connect(dial, newIdentity()), connect(dial, newIdentity())
	defer alice.Close()
	defer bob.Close()

	hers, err := alice.JoinRoom(ctx, "lobby")
	if err != nil {
		log.Fatal(err)
	}
	his, err := bob.JoinRoom(ctx, "lobby")
	if err != nil {
		log.Fatal(err)
	}
	defer his.Leave()
	fmt.Println(his.Members(), "are in", his.Name())
	if _, err := his.Send(ctx, []byte("hello, all")); err != nil {
		log.Fatal(err)
	}
	for p, err := range hers.Messages(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", p.Data)
		break
	}
	// Output:
	// 2 are in lobby
	// hello, all
}

// Two who look for somebody to play with find each other, and write sealed letters
// from then on.
func ExampleClient_FindMatch() {
	ctx, dial := context.Background(), startRelay()
	var playing sync.WaitGroup
	play := func(move string) {
		c := connect(dial, newIdentity())
		defer c.Close()
		peer, err := c.FindMatch(ctx, "rock-paper-scissors")
		if err != nil {
			log.Fatal(err)
		}
		if _, err := c.Send(ctx, peer, client.Text(move)); err != nil {
			log.Fatal(err)
		}
		for l, err := range c.Messages(ctx) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println(move, "meets", l.Text())
			break
		}
	}
	playing.Go(func() { play("rock") })
	playing.Go(func() { play("paper") })
	playing.Wait()
	// Unordered output:
	// rock meets paper
	// paper meets rock
}

func connect(dial transport.Dialer, id *crypto.Identity) *client.Client {
	c, err := client.New(context.Background(), &client.Config{Identity: id, Dial: dial})
	if err != nil {
		log.Fatal(err)
	}
	return c
}
