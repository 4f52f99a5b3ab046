package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// A Receipt says how far a message has come when Send returns. It is the relay's
// word.
type Receipt struct {
	ID     [16]byte // of the message; the Letter has the same
	Status Status
}

// A Status says how far a message has come.
type Status uint8

const (
	Queued  Status = iota // NoWait: it will be sent, and sent again until there is a receipt
	Written               // legacy session: it was given to the connection, and nothing will be heard of it
	Handed                // the relay has queued it for the recipient's connection
	Stored                // the relay keeps it for the recipient
)

// String returns "queued", "written", "handed" or "stored".
func (s Status) String() string {
	switch s {
	case Written:
		return "written"
	case Handed:
		return "handed"
	case Stored:
		return "stored"
	}
	return "queued"
}

// A SendOption changes how one message is sent.
type SendOption func(*sendOptions)

type sendOptions struct {
	frameType frame.Type // zero: sealed
	ephemeral bool
	noWait    bool
}

// Signed sends the message signed and readable by relays (SIGNED_DATA), also to
// those who know no SEALED.
func Signed() SendOption {
	return func(o *sendOptions) { o.frameType = frame.TypeSignedData }
}

// Clear sends the message readable and unsigned (DATA). It has no type then and
// arrives as Raw; a File cannot be sent so.
func Clear() SendOption {
	return func(o *sendOptions) { o.frameType = frame.TypeData }
}

// Ephemeral has the relay hand the message over now or refuse it with
// frame.CodeNotHere, and never store it.
func Ephemeral() SendOption { return func(o *sendOptions) { o.ephemeral = true } }

// NoWait has Send return, with Queued, once the message is in the bounded queue
// of those without a receipt. What becomes of it is told to Trace.Settled; the
// context does not matter to it any more. Messages that one goroutine sends so
// arrive in order.
func NoWait() SendOption { return func(o *sendOptions) { o.noWait = true } }

// maxPayload is what relays accept by default (spec brep.md, "Frame").
const maxPayload = 4 << 20

// Send sends a message and returns at the relay's receipt: Handed, Stored, or a
// [*RefusedError]. While there is no connection it waits for one. Nothing of the
// content is kept after it has returned.
//
// When ctx ends, Send returns its error and the message is not sent again. It has
// arrived or not: only a receipt tells. The same holds for every error that comes
// after the message was taken, so who sends the same content again after an error
// may have it arrive twice.
//
// Messages to one recipient are sent in the order in which Send took them.
func (c *Client) Send(ctx context.Context, to crypto.PublicKey, content Content, options ...SendOption) (Receipt, error) {
	if err := ctx.Err(); err != nil {
		return Receipt{}, err
	}
	var o sendOptions
	for _, set := range options {
		set(&o)
	}
	p, err := c.prepare(to, content, o)
	if err != nil {
		return Receipt{}, err
	}
	if err := c.enqueue(ctx, p); err != nil {
		return Receipt{}, err
	}
	if o.noWait {
		return Receipt{ID: p.frame.ID, Status: Queued}, nil
	}
	return c.await(ctx, p)
}

// prepare makes the frame, once for all times that it is sent.
func (c *Client) prepare(to crypto.PublicKey, content Content, o sendOptions) (*pending, error) {
	if content.err != nil {
		return nil, content.err
	}
	if len(content.Data) > maxPayload {
		return nil, ErrTooLarge
	}
	if err := to.Check(); err != nil {
		return nil, fmt.Errorf("client: recipient: %w", err)
	}
	f := frame.Brep{Type: o.frameType, Flags: frame.FlagReceipt, Sender: c.cfg.Identity.Public()}
	if o.ephemeral {
		f.Flags |= frame.FlagEphemeral
	}
	if _, err := rand.Read(f.ID[:]); err != nil {
		return nil, err
	}
	if err := c.protect(&f, to, content.Content); err != nil {
		return nil, fmt.Errorf("client: content: %w", err)
	}
	if len(f.Payload) > maxPayload {
		return nil, ErrTooLarge
	}
	return &pending{to: to, frame: f, made: time.Now(), awaited: !o.noWait, settled: make(chan struct{})}, nil
}

var errClearFile = errors.New("a File in the clear would lose its name")

// protect fills in the payload, the signature, and a type that is left open.
func (c *Client) protect(f *frame.Brep, to crypto.PublicKey, content crypto.Content) (err error) {
	id := c.cfg.Identity
	switch f.Type {
	case frame.TypeData:
		if content.Type == crypto.File {
			return errClearFile
		}
		f.Payload = append(to[:], content.Data...)
		return nil
	case frame.TypeSignedData:
		f.Payload, f.Signature, err = crypto.SignContent(id, to, content)
		return err
	}
	if key, ok := c.cfg.Contacts(to); ok {
		f.Type = frame.TypeEncryptedData
		f.Payload, f.Signature, err = crypto.SealEncrypted(id, to, key, content)
		return err
	}
	key, err := to.SealKey()
	if err != nil {
		return err
	}
	f.Type = frame.TypeSealed
	f.Payload, f.Signature, err = crypto.Seal(id, key, f.ID, content)
	return err
}

// enqueue waits for room.
func (c *Client) enqueue(ctx context.Context, p *pending) error {
	for {
		full, err := c.out.add(p)
		if full == nil {
			return err
		}
		select {
		case <-full:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// await waits for the end of a message.
func (c *Client) await(ctx context.Context, p *pending) (Receipt, error) {
	select {
	case <-p.settled:
	case <-ctx.Done():
		c.out.settle(p.frame.ID, 0, ctx.Err()) // unless it just has been
		<-p.settled
	}
	if p.err != nil {
		return Receipt{}, p.err
	}
	return p.receipt(), nil
}
