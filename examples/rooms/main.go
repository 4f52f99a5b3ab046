// Rooms is a chat room of a site, in the terminal. The relay passes on what is said
// and cannot read it: those in the room share a key.
//
//	go run ./examples/rooms
//
// runs to its end by itself: it has a relay of its own, and three visitors. With a
// relay that others reach too,
//
//	go run ./examples/rooms -relay ws://127.0.0.1:8080/json -name ann
//
// enters the room, and prints the command with which others join. A line is said, and
// the room is left at the end of the input.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"unicode"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/jsonmsg"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/ws"
)

func main() {
	url := flag.String("relay", "", "the `URL` of a relay; without it the program plays by itself")
	room := flag.String("room", "lobby", "the `ROOM` to enter")
	name := flag.String("name", "guest", "the `NAME` to go by")
	secret := flag.String("key", "", "the `KEY` that those in the room share; without it a new one is made")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *url == "" {
		err = play(ctx, os.Stdout)
	} else {
		err = visit(ctx, *url, *room, *name, *secret)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "rooms:", printable(err.Error()))
		os.Exit(1)
	}
}

// visit is in a room until the input ends.
func visit(ctx context.Context, url, room, name, secret string) error {
	if secret == "" {
		secret = newSecret()
		fmt.Printf("to join: go run ./examples/rooms -relay %s -room %s -key %s -name NAME\n", url, room, secret)
	}
	key, err := parseKey(secret)
	if err != nil {
		return fmt.Errorf("-key is none: %w", err)
	}
	v, err := enter(ctx, ws.Dialer(url, nil), room, name, key)
	if err != nil {
		return err
	}
	defer v.client.Close()
	fmt.Printf("in the room: %d\n", v.members)
	lines := make(chan error, 1)
	go func() { // a read cannot be interrupted: it ends with the program
		var err error
		for s := bufio.NewScanner(os.Stdin); err == nil && s.Scan(); {
			err = v.say(ctx, s.Text())
		}
		lines <- err
		_ = v.client.Close()
	}()
	for who, text := range v.heard(ctx) {
		fmt.Printf("%s: %s\n", printable(who), printable(text))
	}
	select {
	case err := <-lines:
		return err
	default:
		return v.client.Err() // nil after an interrupt
	}
}

// A visitor is in a room.
type visitor struct {
	client  *jsonmsg.Client
	room    string
	key     *jsonmsg.SharedKey
	members int
}

// enter joins a room under a name.
func enter(ctx context.Context, dial transport.Dialer, room, name string, key *jsonmsg.SharedKey) (*visitor, error) {
	c, err := jsonmsg.Connect(ctx, dial, &jsonmsg.ClientOptions{Address: name, Reconnect: true})
	if err != nil {
		return nil, err
	}
	members, err := c.Join(ctx, room)
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return &visitor{c, room, key, members}, nil
}

// say seals a line for those in the room who have the key, and sends it to all others.
func (v *visitor) say(ctx context.Context, line string) error {
	ct, err := v.key.Seal(v.room, []byte(line))
	if err != nil {
		return err
	}
	return v.client.SendRoom(ctx, v.room, ct)
}

// heard returns what others say, until ctx or the client ends.
func (v *visitor) heard(ctx context.Context) func(yield func(who, text string) bool) {
	return func(yield func(who, text string) bool) {
		for event, err := range v.client.Events(ctx) {
			if err != nil {
				return
			}
			m, ok := event.(*jsonmsg.RoomMessage)
			if !ok {
				continue
			}
			text, err := v.key.Open(m.Room, m.CT)
			if err != nil {
				text = []byte("(something that is not sealed with our key)")
			}
			if !yield(m.From, string(text)) {
				return
			}
		}
	}
}

// play has three visitors meet in a room of a relay of its own.
func play(ctx context.Context, out io.Writer) error {
	srv := &relay.Server{Logger: slog.New(slog.DiscardHandler)}
	defer srv.Close()
	dial := func(context.Context) (transport.Conn, error) { return srv.Dial(jsonmsg.Dialect{}), nil }
	key, err := parseKey(newSecret())
	if err != nil {
		return err
	}
	var room []*visitor
	for _, name := range []string{"ann", "bob", "eve"} {
		with := key
		if name == "eve" { // who was not given it
			if with, err = parseKey(newSecret()); err != nil {
				return err
			}
		}
		v, err := enter(ctx, dial, "lobby", name, with)
		if err != nil {
			return err
		}
		defer v.client.Close()
		fmt.Fprintf(out, "%s comes in, and is one of %d\n", name, v.members)
		room = append(room, v)
	}
	for i, line := range []string{"is anybody here?", "we are, ann"} {
		if err := room[i].say(ctx, line); err != nil {
			return err
		}
		for j, v := range room {
			if i == j {
				continue // who says it does not hear it
			}
			for who, text := range v.heard(ctx) {
				fmt.Fprintf(out, "%s hears %s: %s\n", v.client.Address(), who, text)
				break
			}
		}
	}
	return ctx.Err()
}

func newSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // does not fail
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func parseKey(secret string) (*jsonmsg.SharedKey, error) {
	b, err := base64.RawURLEncoding.DecodeString(secret)
	if err != nil {
		return nil, err
	}
	return jsonmsg.NewSharedKey(b)
}

// printable returns a stranger's text without what a terminal would obey.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}
