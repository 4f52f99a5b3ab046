// Chat is a conversation between two terminals over a relay that cannot read it.
//
//	go run ./examples/chat
//
// starts a relay on this machine and prints the one command that joins it from
// another terminal. All that the two need of each other is an address: the key
// that messages are sealed to. Compare fingerprints over the telephone to know
// that nobody is in between.
//
// An identity is kept in a file for each -name, so who comes back gets what was
// written meanwhile. The relay keeps that in memory and ends with the program that
// started it. Standard input may be a pipe: at its end the program waits for its
// receipts, and stays for -wait to hear answers. The exit code is 1 if a line was
// not sent.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport/ws"
)

func main() {
	var o options
	flag.StringVar(&o.join, "join", "", "the `URL` of a relay; without it one is started here")
	flag.StringVar(&o.to, "to", "", "the `ADDRESS` to write to; without it, whoever writes first")
	flag.StringVar(&o.name, "name", "", "the `NAME` to keep an identity under (default host, or guest with -join)")
	flag.DurationVar(&o.wait, "wait", 2*time.Second, "how long to stay when standard input ends")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o, &room{in: os.Stdin, out: os.Stdout}); err != nil {
		fmt.Fprintln(os.Stderr, "chat:", printable(err.Error()))
		os.Exit(1)
	}
}

type options struct {
	join, to, name string
	wait           time.Duration
}

func run(ctx context.Context, o options, r *room) error {
	switch {
	case o.name != "":
	case o.join == "":
		o.name = "host"
	default:
		o.name = "guest"
	}
	id, err := loadIdentity("people", o.name)
	if err != nil {
		return err
	}
	r.self = id.Public()
	r.introduce("you are", r.self)
	if o.to != "" {
		if r.peer, err = crypto.ParsePublicKey(o.to); err != nil {
			return fmt.Errorf("-to is not an address, the 64 digits that the other side shows: %w", err)
		}
		r.introduce("you write to", r.peer)
	}
	if o.join == "" {
		url, stop, err := startRelay(r, o.name)
		if err != nil {
			return err
		}
		defer stop()
		r.say("* to join from another terminal:\n\ngo run ./examples/chat -join %s -to %v\n", url, r.self)
		o.join = url
	}
	return r.chat(ctx, id, o.join, o.wait)
}

// loadIdentity loads the identity of a name among those of a kind, or makes one.
func loadIdentity(kind, name string) (*crypto.Identity, error) {
	if !crypto.SafeFileName(name) {
		return nil, fmt.Errorf("%q does not do as the name of a file", name)
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, "sotto", "chat", kind)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return crypto.LoadOrCreateIdentity(filepath.Join(dir, name))
}

// startRelay starts a relay that only this machine reaches. Its port and key stay
// the same if they can, so that who has joined before finds it again.
func startRelay(r *room, name string) (url string, stop func(), err error) {
	id, err := loadIdentity("relays", name)
	if err != nil {
		return "", nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:7710")
	if err != nil { // it is taken
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return "", nil, err
	}
	srv := &relay.Server{Inbox: inbox.NewMemory(nil), Logger: slog.New(slog.DiscardHandler)}
	web := &http.Server{
		Handler:           ws.Handler(srv.Speak(brep.Dialect{Identity: id}), nil),
		ReadHeaderTimeout: 5 * time.Second,
	}
	go func() { _ = web.Serve(l) }() // until stop
	return "ws://" + l.Addr().String(), func() {
		_ = web.Close()
		_ = srv.Close()
		if n := srv.Stats().Held; n > 0 {
			r.say("* messages that are lost with this relay, since nobody has come for them: %d", n)
		}
	}, nil
}
