// Federation is three relays of different operators in one process, and clients of
// theirs, who write to one another as if there was one relay. Ann writes to Bob, who is
// at another relay; that relay stops, so her next message waits at hers; it comes back,
// and Bob comes to where his message is.
//
//	go run ./examples/federation
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
	"github.com/sotto-relay/sotto/mesh"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/client"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/ws"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	slog.SetLogLoggerLevel(slog.LevelError) // that a relay is not there is the point
	if err := run(ctx, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// An operator runs one relay.
type operator struct {
	name  string
	id    *crypto.Identity
	host  string // HOST:PORT
	peers []mesh.Peer
	store inbox.Store

	srv  *relay.Server
	web  *http.Server
	stop context.CancelFunc
	done chan error // from what start began, one each
}

func (o *operator) url() string { return "ws://" + o.host + "/" }

// start runs the relay.
func (o *operator) start() error {
	m := mesh.New(&mesh.Config{
		Identity: o.id, Peers: o.peers, Advertise: o.url(),
		PrivateAddresses: true, // all of them are on this machine
		Dial: func(ctx context.Context, address string, d *net.Dialer) (transport.Conn, error) {
			return ws.Dialer(address, &ws.DialOptions{Dial: d.DialContext})(ctx)
		},
	})
	l, err := net.Listen("tcp", o.host)
	if err != nil {
		return err
	}
	o.host = l.Addr().String()
	o.srv = &relay.Server{Inbox: o.store, Mesh: m, Logger: slog.New(slog.DiscardHandler)}
	o.web = &http.Server{
		Handler:           ws.Handler(o.srv.Speak(brep.Dialect{Identity: o.id, Mesh: m, Advertise: o.url()}), nil),
		ReadHeaderTimeout: 5 * time.Second,
	}
	ctx, stop := context.WithCancel(context.Background())
	o.stop, o.done = stop, make(chan error, 2)
	go func() { o.done <- m.Run(ctx, o.srv) }()
	go func() { o.done <- o.web.Serve(l) }()
	return nil
}

// end stops it. What waits in its inbox is there when it starts again.
func (o *operator) end() {
	if o.done == nil {
		return
	}
	_ = o.web.Close()
	_ = o.srv.Close()
	o.stop()
	<-o.done
	<-o.done
	o.done = nil
}

// found has three operators agree to link: each knows the others' addresses and keys.
func found() (all []*operator, err error) {
	for _, name := range []string{"oak", "elm", "fir"} {
		id, errID := crypto.GenerateIdentity()
		l, errListen := net.Listen("tcp", "127.0.0.1:0") // to know a free port
		if err := errors.Join(errID, errListen); err != nil {
			return nil, err
		}
		all = append(all, &operator{name: name, id: id, host: l.Addr().String(), store: inbox.NewMemory(nil)})
		_ = l.Close()
	}
	for _, o := range all {
		for _, other := range all {
			if other != o {
				key := other.id.Public()
				o.peers = append(o.peers, mesh.Peer{Address: other.url(), Key: &key})
			}
		}
	}
	return all, nil
}

// A person uses a client, at one relay at a time.
type person struct {
	name string
	id   *crypto.Identity
	*client.Client
}

func (p *person) login(ctx context.Context, o *operator) error {
	key := o.id.Public()
	c, err := client.New(ctx, &client.Config{
		Identity: p.id, Dial: ws.Dialer(o.url(), nil), Relay: &key, Logger: slog.New(slog.DiscardHandler),
	})
	p.Client = c
	return err
}

// write sends a text and returns how far it has come.
func (p *person) write(ctx context.Context, to *person, text string) (client.Status, error) {
	r, err := p.Send(ctx, to.id.Public(), client.Text(text))
	return r.Status, err
}

func (p *person) read(ctx context.Context, out io.Writer) error {
	for letter, err := range p.Messages(ctx) {
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s reads: %q (%v)\n", p.name, letter.Text(), letter.Protection)
		return nil
	}
	return ctx.Err()
}

func run(ctx context.Context, out io.Writer) error {
	all, err := found()
	if err != nil {
		return err
	}
	for _, o := range all {
		if err := o.start(); err != nil {
			return err
		}
		defer func() { o.end() }()
		fmt.Fprintf(out, "%s is up\n", o.name)
	}
	oak, elm := all[0], all[1]
	annID, errAnn := crypto.GenerateIdentity()
	bobID, errBob := crypto.GenerateIdentity()
	if err := errors.Join(errAnn, errBob); err != nil {
		return err
	}
	ann, bob := &person{name: "ann", id: annID}, &person{name: "bob", id: bobID}
	if err := errors.Join(ann.login(ctx, oak), bob.login(ctx, elm)); err != nil {
		return err
	}
	defer ann.Close()
	return talk(ctx, out, ann, bob, oak, elm)
}

func talk(ctx context.Context, out io.Writer, ann, bob *person, oak, elm *operator) error {
	if err := handed(ctx, ann, bob, "hello from oak"); err != nil {
		return err
	}
	fmt.Fprintln(out, "ann, at oak, writes to bob, at elm: handed")
	if err := bob.read(ctx, out); err != nil {
		return err
	}

	_ = bob.Close()
	elm.end()
	fmt.Fprintln(out, "elm is down")
	status, err := ann.write(ctx, bob, "are you there?")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "ann writes to bob:", status)

	if err := elm.start(); err != nil {
		return err
	}
	fmt.Fprintln(out, "elm is up again")
	if err := bob.login(ctx, oak); err != nil {
		return err
	}
	defer bob.Close()
	fmt.Fprintln(out, "bob comes to oak, where his mail is")
	return bob.read(ctx, out)
}

// handed writes until the message is handed to a live session: the relays may be
// about to find one another.
func handed(ctx context.Context, from, to *person, text string) error {
	for {
		r, err := from.Send(ctx, to.id.Public(), client.Text(text), client.Ephemeral())
		var refused *client.RefusedError
		switch {
		case err == nil && r.Status == client.Handed:
			return nil
		case err != nil && !errors.As(err, &refused):
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
