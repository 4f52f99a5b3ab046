package meshsim

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
)

// A letter is a message and what became of it.
type letter struct {
	to      *client
	sent    time.Time
	taken   bool // a relay has said that it stored it or handed it over
	arrived time.Time
}

// A client is connected to one relay after the other: to another one when the relay
// goes or the client moves.
type client struct {
	w        *world
	id       *crypto.Identity
	attaches bool

	mu   sync.Mutex
	node *node        // where it is
	conn *brep.Client // nil: nowhere
}

// join has a client connect to some relay, and go on until ctx ends.
func (w *world) join(ctx context.Context, attaches bool, first *node) *client {
	c := &client{w: w, id: w.identity(), attaches: attaches}
	w.clients = append(w.clients, c)
	w.running.Go(func() {
		for at := first; ctx.Err() == nil; at = nil {
			c.session(ctx, at)
			select {
			case <-time.After(time.Second + time.Duration(w.n(4000))*time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	return c
}

// session is one connection, to a relay or to any.
func (c *client) session(ctx context.Context, at *node) {
	if at == nil {
		at = c.anywhere()
	}
	conn, err := at.net.Dial(ctx)
	if err != nil {
		return
	}
	b, err := brep.Connect(ctx, conn, &brep.ClientOptions{Identity: c.id, ManualAck: true})
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = b.Close() })()
	if c.attaches {
		statement := crypto.Attach(c.id, at.cfg.Identity.Public(), time.Now().Add(time.Hour))
		request := fmt.Appendf(nil, `{"t":"attach","req":1,"stmt":%q}`, base64.StdEncoding.EncodeToString(statement[:]))
		_ = b.Send(ctx, &frame.Brep{Type: frame.TypeRequest, Sender: c.id.Public(), Payload: request})
	}
	c.is(at, b)
	defer c.is(nil, nil)
	for {
		f, err := b.Receive()
		if err != nil {
			return
		}
		switch f.Type {
		case frame.TypeData:
			c.w.arrived(f.ID)
			b.Ack(&f)
		case frame.TypeReceipt:
			if r, err := frame.DecodeReceipt(f.Payload); err == nil && r.Status <= frame.ReceiptAcknowledged {
				c.w.taken(r.ID)
			}
		}
	}
}

func (c *client) anywhere() *node {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return c.w.up[c.w.rng.IntN(len(c.w.up))]
}

func (c *client) is(at *node, conn *brep.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.node, c.conn = at, conn
}

func (c *client) where() (*node, *brep.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node, c.conn
}

// move ends the connection, so that there will be another one elsewhere.
func (c *client) move() {
	if _, conn := c.where(); conn != nil {
		_ = conn.Close()
	}
}

// send sends a letter, if the client is connected.
func (c *client) send(to *client) *letter {
	_, conn := c.where()
	if conn == nil {
		return nil
	}
	w, l := c.w, &letter{to: to, sent: time.Now()}
	var id relay.ID
	w.mu.Lock()
	w.posted++
	binary.BigEndian.PutUint64(id[:], w.posted)
	w.letters[id] = l
	w.mu.Unlock()
	key := to.id.Public()
	f := &frame.Brep{Type: frame.TypeData, ID: id, Flags: frame.FlagReceipt, Sender: c.id.Public(), Payload: append(key[:], make([]byte, 200)...)}
	_ = conn.Send(context.Background(), f)
	return l
}

func (w *world) arrived(id relay.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch l := w.letters[id]; {
	case l == nil: // of an earlier phase
	case l.arrived.IsZero():
		l.arrived = time.Now()
	default:
		w.doubles++
	}
}

func (w *world) taken(id relay.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.letters[id]; l != nil {
		l.taken = true
	}
}
