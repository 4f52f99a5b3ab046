package brep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/transport"
)

// ClientOptions are what a client brings to a connection. They are not changed
// while Connect runs.
type ClientOptions struct {
	Identity *crypto.Identity // required

	// Expect is the key that the relay must have, pinned or seen before (see
	// handshake.Expect). Nil accepts any, and the Client's Relay then says
	// FirstContact. A relay that is expected to have a key is never spoken to in
	// v1.
	Expect *crypto.PublicKey

	// AllowLegacy allows a relay that speaks v1 only, which proves nothing and has
	// us sign 32 bytes of its choice.
	AllowLegacy bool

	// HandshakeTimeout bounds the handshake. Zero: 10 s.
	HandshakeTimeout time.Duration

	// PingInterval is for media that do not notice by themselves that the peer is
	// gone, such as TCP (spec brep.md, "Errors seen by a peer": 30 s). An extended
	// session then sends PINGs this far apart, and Receive fails after 2.5 times as
	// long without a frame. Zero, and in a legacy session: none are sent.
	PingInterval time.Duration

	// ManualAck leaves it to the caller to acknowledge messages, with Ack. If it is
	// not set, Receive acknowledges the message that it returned before.
	ManualAck bool
}

// ErrExtendedOnly is returned by Send for a frame of a type from 0x10 up in a
// legacy session. Nothing was sent, and the session goes on.
var ErrExtendedOnly = errors.New("brep: this frame type needs an extended session, and the relay speaks v1")

var (
	errSilent         = errors.New("brep: nothing heard from the relay for too long")
	errText           = errors.New("brep: the relay sent a text message")
	errHandshakeAgain = errors.New("brep: the relay sent a handshake message after the handshake")
	errNotLegacy      = errors.New("brep: the relay sent a frame of an extended session in a legacy one")
)

// A Client is the client's end of one connection, after the handshake. It ends
// with the connection. Send, Ack, Relay and Close may be called by any goroutine
// at any time; Receive by one at a time, and somebody has to, since PINGs are
// answered there.
//
// What the relay has handed to an extended session it keeps until it is
// acknowledged, and at most 256 messages and 8 MiB at a time. What is not
// acknowledged when the session ends comes again in the next one, first and in
// order (spec native.md, "Delivery").
type Client struct {
	conn      transport.Conn
	identity  *crypto.Identity
	key       crypto.PublicKey
	relay     handshake.Relay
	manualAck bool
	isBatcher bool // conn says when it is dry, and acknowledgements can wait for that
	out       sendQueue

	// Owned by the goroutine in Receive.
	returned frame.Brep    // the latest message, without its payload, if Receive is to acknowledge it
	last     *RelayError   // what the latest frame said, if that was an ERROR about no frame in particular
	interval time.Duration // of PINGs; zero: none, and what follows is not used
	heard    time.Time     // when the latest frame came, or reading began
	nextPing time.Time
	readBy   time.Time // the read deadline that is set
}

// Connect runs the handshake over conn and owns it from then on: it is closed
// when Connect fails, and with the Client. ctx bounds the handshake, not the
// connection. The conn's read limit is left as it is: frames of up to 4 MiB and
// 120 bytes have to pass.
//
// The error is a *handshake.Error when we refused the relay (it wraps
// handshake.ErrLegacyRelay, a *handshake.KeyMismatchError and others), a
// *[RelayError] when the relay refused us, and wraps the context's error when
// the time was up.
func Connect(ctx context.Context, conn transport.Conn, o *ClientOptions) (*Client, error) {
	timeout := o.HandshakeTimeout
	if timeout <= 0 {
		timeout = readyTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close(transport.CloseNormal, "") })
	c := &Client{conn: conn, identity: o.Identity, key: o.Identity.Public(), manualAck: o.ManualAck}
	c.out.init(conn, c.key)
	if b, ok := conn.(transport.Batcher); ok {
		c.isBatcher = true
		b.SetDry(c.out.flushAcks)
	}
	relay, err := shakeHands(conn, &handshake.ClientConfig{
		Identity: o.Identity, Expect: o.Expect, AllowLegacy: o.AllowLegacy,
	})
	if !stop() {
		return nil, fmt.Errorf("brep: handshake: %w", ctx.Err())
	}
	if err != nil {
		_ = conn.Close(closeCode(err), "")
		return nil, err
	}
	c.relay = relay
	if o.PingInterval > 0 && !c.legacy() {
		c.interval, c.heard = o.PingInterval, time.Now()
		c.nextPing = c.heard.Add(c.interval)
	}
	return c, nil
}

// shakeHands brings the client's half of the handshake to its end.
func shakeHands(conn transport.Conn, cfg *handshake.ClientConfig) (handshake.Relay, error) {
	h := handshake.NewClient(cfg)
	for {
		kind, msg, err := conn.Read()
		switch {
		case err != nil:
			return handshake.Relay{}, lastWords(nil, err)
		case kind != transport.Binary:
			return handshake.Relay{}, errText
		}
		f, err := frame.DecodeBrep(msg)
		if err != nil {
			return handshake.Relay{}, err
		}
		if e := sessionError(&f); e != nil {
			return handshake.Relay{}, e
		}
		reply, err := h.Receive(&f)
		if err != nil {
			return handshake.Relay{}, err
		}
		if reply != nil {
			if err := writeAll(conn, [][]byte{reply.Append(nil)}); err != nil {
				return handshake.Relay{}, err
			}
		}
		if relay, done := h.Relay(); done {
			return relay, nil
		}
	}
}

// Relay returns whom the connection leads to: the key that the relay proved to
// have, the version of the handshake, the features announced, and whether this
// was the first contact. After version 1 the session is legacy.
func (c *Client) Relay() handshake.Relay { return c.relay }

func (c *Client) legacy() bool { return c.relay.Version == 1 }

// Send queues frames to be written in order, all or none, together with what
// others send meanwhile. While 1 MiB or more waits it blocks, until ctx ends. A
// nil error does not say that the relay has the frames: that is what receipts
// are for.
//
// The frames are neither kept nor changed. On the wire their sender is always
// our own key, and in a legacy session flags and id are zero; a type that a
// legacy session does not have is ErrExtendedOnly. After the end of the
// connection the error says why it ended, as Receive's does, and is net.ErrClosed
// after Close.
func (c *Client) Send(ctx context.Context, frames ...*frame.Brep) error {
	size := 0
	for _, f := range frames {
		if c.legacy() && !isLegacyType(f.Type) {
			return ErrExtendedOnly
		}
		size += f.Size()
	}
	if size == 0 {
		return nil
	}
	return c.out.push(ctx, size, func(add func(*frame.Brep)) {
		for _, f := range frames {
			g := *f
			g.Sender = c.key
			if c.legacy() {
				g.Flags, g.ID = 0, [16]byte{}
			}
			add(&g)
		}
	})
}

// Receive waits for the next frame. Its payload is valid until the next call.
// PINGs are answered and PONGs noted; neither is returned. Nothing of the frame
// but its layout has been checked, neither sender nor signature.
//
// Unless ManualAck was set, calling Receive says that the message that it returned
// before has been handled: it is acknowledged, together with others that come at
// the same time. So the message that was returned last comes again in the next
// session.
//
// A frame over the conn's read limit is transport.ErrTooLarge: it was skipped,
// and the session goes on. After any other error the connection is closed. It is
// a *[RelayError] when the relay said why: in an ERROR frame about no frame in
// particular (which was returned) that nothing came after, or with a close code.
// After Close it is net.ErrClosed.
func (c *Client) Receive() (frame.Brep, error) {
	c.ack(&c.returned, !c.isBatcher)
	c.returned = frame.Brep{}
	for {
		f, err := c.next()
		switch {
		case errors.Is(err, transport.ErrTooLarge):
			return frame.Brep{}, err
		case err != nil:
			err = c.out.end(err)
			_ = c.conn.Close(closeCode(err), "")
			return frame.Brep{}, err
		}
		switch f.Type {
		case frame.TypePing:
			c.out.offer(&frame.Brep{Type: frame.TypePong, Sender: c.key, Payload: f.Payload})
		case frame.TypePong:
		default:
			if !c.manualAck {
				c.returned = f
				c.returned.Payload = nil
			}
			return f, nil
		}
	}
}

// Ack acknowledges a message that Receive has returned, with ManualAck, once it
// has been handled: the relay forgets it. All but the payload of m is looked at.
// What needs no acknowledgement is passed over: frames that are no messages,
// those without an id, ephemeral ones, and all of a legacy session.
//
// It neither waits nor fails: if the connection has ended, the message comes
// again in the next session. Acknowledgements that meet on the way are written
// together.
func (c *Client) Ack(m *frame.Brep) { c.ack(m, true) }

// ack is Ack. If now is false the acknowledgement may wait for others.
func (c *Client) ack(m *frame.Brep, now bool) {
	if c.legacy() || !isKept(m) {
		return
	}
	a := frame.Ack{Sender: m.Sender, ID: m.ID}
	if m.Flags&frame.FlagReceipt != 0 {
		a.Signature = c.identity.Sign(ackMessage(a.Sender, a.ID))
	}
	c.out.ack(&a, now)
}

// isKept says whether a relay that has written a frame to an extended session
// keeps it until it is acknowledged.
func isKept(f *frame.Brep) bool {
	switch f.Type {
	case frame.TypeData, frame.TypeSignedData, frame.TypeEncryptedData, frame.TypeSealed:
		return f.ID != [16]byte{} && f.Flags&frame.FlagEphemeral == 0
	}
	return false
}

// next returns the next frame, if it is one that belongs into the session.
func (c *Client) next() (frame.Brep, error) {
	kind, msg, err := c.read()
	switch {
	case errors.Is(err, transport.ErrTooLarge):
		return frame.Brep{}, err
	case err != nil:
		return frame.Brep{}, lastWords(c.last, err)
	case kind != transport.Binary:
		return frame.Brep{}, errText
	}
	f, err := frame.DecodeBrep(msg)
	switch {
	case err != nil:
		return frame.Brep{}, err
	case f.Type == frame.TypeHandshake:
		return frame.Brep{}, errHandshakeAgain
	case c.legacy() && !isLegacyType(f.Type):
		return frame.Brep{}, errNotLegacy
	}
	c.last = sessionError(&f)
	return f, nil
}

// read is conn.Read, with a PING whenever one is due, until the relay has been
// silent for too long.
func (c *Client) read() (transport.Kind, []byte, error) {
	if c.interval == 0 {
		return c.conn.Read()
	}
	now := time.Now()
	c.heard = now // what came since the last call has not been looked at
	for {
		if !now.Before(c.nextPing) {
			c.out.offer(&frame.Brep{Type: frame.TypePing, Sender: c.key, Payload: make([]byte, 8)})
			c.nextPing = now.Add(c.interval)
		}
		silent := c.heard.Add(c.interval * 5 / 2)
		if !now.Before(silent) {
			return 0, nil, errSilent
		}
		by := c.nextPing
		if silent.Before(by) {
			by = silent
		}
		if !by.Equal(c.readBy) {
			if err := c.conn.SetReadDeadline(by); err != nil {
				return 0, nil, err
			}
			c.readBy = by
		}
		kind, msg, err := c.conn.Read()
		now = time.Now()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			c.heard = now
			return kind, msg, err
		}
	}
}

// Close ends the connection, after what has been queued is written,
// acknowledgements too, for which it waits a second at most. The message that
// Receive returned last is not acknowledged. It may be called any number of
// times, and always returns nil.
func (c *Client) Close() error {
	c.out.drain()
	return c.conn.Close(transport.CloseNormal, "")
}
