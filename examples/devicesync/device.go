package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay/dialect/blind"
	"github.com/sotto-relay/sotto/transport"
)

// A device has a copy of the document: entries that are only ever added, so that
// copies are brought together in any order and any number of times.
type device struct {
	name   string
	ring   *keyring
	client *blind.Client
	outbox chan blind.Message // what receive has to say: it must not wait for a connection itself

	mu       sync.Mutex
	conn     transport.Conn
	document map[string]string
	written  int
	secret   secret // of the document now; zero: not paired yet
	missed   bool   // something could not be opened, for want of a newer secret
}

// A bootstrap is what a device has to know to take part.
type bootstrap struct {
	Secret  secret
	Members []string
}

func newDevice(name string, ring *keyring, dial transport.Dialer) *device {
	d := &device{name: name, ring: ring, outbox: make(chan blind.Message, 100), document: make(map[string]string)}
	d.client = blind.NewClient(blind.ClientConfig{
		Sealer: ring,
		Sender: ring.name(),
		Dial: func(ctx context.Context) (transport.Conn, error) {
			c, err := dial(ctx)
			d.mu.Lock()
			defer d.mu.Unlock()
			d.conn = c
			return c, err
		},
	})
	return d
}

// cut ends the connection, as a tunnel does.
func (d *device) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.conn.Close(0, "")
}

// receive takes what comes until ctx ends.
func (d *device) receive(ctx context.Context) {
	defer d.client.Close()
	for {
		e, err := d.client.Receive(ctx)
		switch {
		case err != nil:
			return
		case e.Connected:
			d.catchUp()
		case e.Err == nil:
			d.handle(&e.Header, e.Data)
		case errors.Is(e.Err, errSealed): // there was a rotation while we had no connection
			d.mu.Lock()
			d.missed = true
			d.mu.Unlock()
		}
	}
}

// send sends what receive has to say, until ctx ends.
func (d *device) send(ctx context.Context) {
	for {
		select {
		case m := <-d.outbox:
			_ = d.client.Send(ctx, m) // ctx has ended
		case <-ctx.Done():
			return
		}
	}
}

// say queues a message to the others. What does not fit is left out: the next
// snapshot has it.
func (d *device) say(kind frame.BlindKind, key string, content any) {
	data, err := json.Marshal(content)
	if err != nil {
		return
	}
	select {
	case d.outbox <- blind.Message{Kind: kind, EntityID: key, Data: data}:
	default:
	}
}

// catchUp brings the document up to date after a time without a connection, in
// both directions: what we have, and who has more?
func (d *device) catchUp() {
	key := d.key()
	if key == "" {
		return
	}
	d.say(frame.BlindSnapshot, key, d.entries())
	d.say(frame.BlindAwareness, key, "who has more?")
}

func (d *device) handle(h *frame.BlindHeader, data []byte) {
	switch h.Kind {
	case frame.BlindUpdate, frame.BlindSnapshot:
		var entries map[string]string
		if json.Unmarshal(data, &entries) == nil {
			d.mu.Lock()
			defer d.mu.Unlock()
			maps.Copy(d.document, entries)
		}
	case frame.BlindAwareness:
		if h.EntityID != d.key() { // who asks has missed a rotation, and could not open what comes next
			d.say(frame.BlindWrapBootstrap, h.EntityID, bootstrap{Secret: d.current(), Members: d.ring.members()})
		}
		d.say(frame.BlindSnapshot, d.key(), d.entries())
	case frame.BlindWrapBootstrap:
		var b bootstrap
		if json.Unmarshal(data, &b) == nil {
			d.adopt(b)
		}
	case frame.BlindPairing: // whoever has our invitation has been invited
		d.ring.admit(h.Sender)
		b := bootstrap{Secret: d.current(), Members: d.ring.members()}
		d.say(frame.BlindWrapBootstrap, b.Secret.Key, b) // first, so that the others know whom they will hear
		d.say(frame.BlindWrapBootstrap, h.EntityID, b)
	}
}

// adopt takes the secret of the document, if it is newer than ours, and who shares
// it.
func (d *device) adopt(b bootstrap) {
	d.ring.admit(b.Members...)
	d.ring.add(b.Secret)
	d.mu.Lock()
	before, behind := d.secret, d.missed || d.secret.Epoch == 0
	isNew := b.Secret.Epoch > before.Epoch
	if isNew {
		d.secret, d.missed = b.Secret, false
	}
	d.mu.Unlock()
	if !isNew {
		return
	}
	if before.Epoch == 0 {
		d.client.Subscribe(b.Secret.Key)
	} else {
		d.client.Follow(before.Key, b.Secret.Key)
	}
	if behind {
		d.catchUp()
	}
}

// write adds an entry and tells the others.
func (d *device) write(ctx context.Context, text string) error {
	d.mu.Lock()
	d.written++
	entry := map[string]string{d.name + "/" + strconv.Itoa(d.written): text}
	maps.Copy(d.document, entry)
	d.mu.Unlock()
	data, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	return d.client.Send(ctx, blind.Message{Kind: frame.BlindUpdate, EntityID: d.key(), Data: data})
}

// rotate moves all to a fresh key, with a fresh secret.
func (d *device) rotate(ctx context.Context) error {
	before := d.current()
	next := newSecret(before.Epoch + 1)
	data, err := json.Marshal(bootstrap{Secret: next, Members: d.ring.members()})
	if err != nil {
		return err
	}
	// Then the old key leads to everybody until they have the new one; before, the
	// new one would lead to those only who subscribe to it already.
	if err := d.client.Rotate(ctx, before.Key, next.Key); err != nil {
		return err
	}
	m := blind.Message{Kind: frame.BlindWrapBootstrap, EntityID: before.Key, Data: data}
	if err := d.client.Send(ctx, m); err != nil {
		return err
	}
	d.adopt(bootstrap{Secret: next})
	return nil
}

// invite returns an invitation: the secret of a key that is used for nothing else.
func (d *device) invite() secret {
	invitation := newSecret(0)
	d.ring.invite(invitation)
	d.client.Subscribe(invitation.Key)
	return invitation
}

// join shows an invitation until it has let us in.
func (d *device) join(ctx context.Context, invitation secret) error {
	d.ring.invite(invitation)
	d.client.Subscribe(invitation.Key)
	defer d.client.Unsubscribe(invitation.Key)
	for range 50 {
		m := blind.Message{Kind: frame.BlindPairing, EntityID: invitation.Key, Data: []byte("hello")}
		if err := d.client.Send(ctx, m); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond) // the invitation is shown before its key is subscribed to
		if d.key() != "" {
			return nil
		}
	}
	return errors.New("the invitation is not answered")
}

func (d *device) current() secret {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.secret
}

func (d *device) key() string { return d.current().Key }

func (d *device) entries() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.document)
}

// members returns who shares the document.
func (k *keyring) members() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.known))
}
