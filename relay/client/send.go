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

// A Receipt says how far a message has come when Send returns. All but Read is the
// relay's word. The recipient signs for an ID, not for what it read under that: an evil
// relay that brings something of its own making in the place of the message gets that
// signature too if the application takes it, which can tell by a Protection below
// ProtectionSealed.
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
	Read                  // the recipient's application has taken it, which the recipient has signed
)

// String returns "queued", "written", "handed", "stored" or "read".
func (s Status) String() string {
	switch s {
	case Written:
		return "written"
	case Handed:
		return "handed"
	case Stored:
		return "stored"
	case Read:
		return "read"
	}
	return "queued"
}

// A SendOption changes how one message is sent.
type SendOption func(*sendOptions)

type sendOptions struct {
	frameType frame.Type // zero: sealed
	ephemeral bool
	noWait    bool
	until     Status
	retain    bool
	sealer    sealer // of a publication; nil: none
}

func sendOptionsOf(options []SendOption) (o sendOptions) {
	for _, set := range options {
		set(&o)
	}
	return o
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
// of those without a receipt, and in the Store if there is one. What becomes of it
// is told to Trace.Settled; the context does not matter to it any more. Messages
// that one goroutine sends so arrive in order.
func NoWait() SendOption { return func(o *sendOptions) { o.noWait = true } }

// Until has Send, or with NoWait Trace.Settled, wait for a receipt of at least this
// Status: Handed as without it, Stored, or Read. It comes sooner, with a lower one,
// where there are no better: Written in a legacy session, and Handed if a message
// that is not sealed went to a recipient who acknowledges nothing, which shows after
// 15 s, or if it is let go after that, as Config.KeptMessages says.
func Until(s Status) SendOption { return func(o *sendOptions) { o.until = s } }

// maxPayload is what relays accept by default (spec brep.md, "Frame").
const maxPayload = 4 << 20

// Send sends a message and returns at the relay's first receipt, Handed, Stored or
// Read, at a better one with [Until], or with a [*RefusedError]. While there is no
// connection it waits for one. The content may be changed after it has returned; the
// message is pending for longer, see [Client.Pending].
//
// When ctx ends, Send returns its error and the message is not sent again. It has
// arrived or not: only a receipt tells. The same holds for every error that comes
// after the message was taken, so who sends the same content again after an error
// may have it arrive twice. But with a Store, a message that is pending when the
// Client ends stays there, Send returns the reason of the end all the same, and the
// next Client sends it.
//
// Messages to one recipient are sent in the order in which Send took them.
func (c *Client) Send(ctx context.Context, to crypto.PublicKey, content Content, options ...SendOption) (Receipt, error) {
	if err := ctx.Err(); err != nil {
		return Receipt{}, err
	}
	o := sendOptionsOf(options)
	if o.ephemeral && o.until > Handed {
		return Receipt{}, ErrEphemeral
	}
	p, err := c.prepare(ctx, to, content, o)
	if err != nil {
		return Receipt{}, err
	}
	return c.post(ctx, p)
}

// post puts a message into the outbox and returns when its sender wants to.
func (c *Client) post(ctx context.Context, p *pending) (Receipt, error) {
	if err := c.enqueue(ctx, p); err != nil {
		return Receipt{}, err
	}
	return c.answer(ctx, p)
}

// answer returns what the sender of a message in the outbox wants to know.
func (c *Client) answer(ctx context.Context, p *pending) (Receipt, error) {
	if !p.awaited {
		return Receipt{ID: p.frame.ID, Status: Queued}, nil
	}
	return c.await(ctx, p)
}

// prepare makes the frame, once for all times that it is sent.
func (c *Client) prepare(ctx context.Context, to crypto.PublicKey, content Content, o sendOptions) (*pending, error) {
	if content.err != nil {
		return nil, content.err
	}
	if o.retain {
		return nil, errRetainLetter
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
	if err := c.protect(ctx, &f, to, content.Content); err != nil {
		return nil, err
	}
	if len(f.Payload) > maxPayload {
		return nil, ErrTooLarge
	}
	return &pending{
		to: to, frame: f, made: time.Now(), until: min(max(o.until, Handed), Read),
		awaited: !o.noWait, settled: make(chan struct{}),
	}, nil
}

var errClearFile = errors.New("a File in the clear would lose its name")

// protect fills in the payload, the signature, and a type that is left open.
func (c *Client) protect(ctx context.Context, f *frame.Brep, to crypto.PublicKey, content crypto.Content) (err error) {
	id := c.cfg.Identity
	switch f.Type {
	case frame.TypeData:
		if content.Type == crypto.File {
			return badContent(errClearFile)
		}
		f.Payload = append(to[:], content.Data...)
		return nil
	case frame.TypeSignedData:
		f.Payload, f.Signature, err = crypto.SignContent(id, to, content)
		return badContent(err)
	}
	if key, ok := c.cfg.Contacts(to); ok {
		if err := c.book.mayDoWithout(ctx, to); err != nil {
			return err
		}
		f.Type = frame.TypeEncryptedData
		f.Payload, f.Signature, err = crypto.SealEncrypted(id, to, key, content)
		return badContent(err)
	}
	key, err := c.book.sealKey(ctx, to)
	if err != nil {
		return err
	}
	f.Type = frame.TypeSealed
	f.Payload, f.Signature, err = crypto.Seal(id, key, f.ID, content)
	return badContent(err)
}

func badContent(err error) error {
	if err != nil {
		err = fmt.Errorf("client: content: %w", err)
	}
	return err
}

// enqueue waits for room, and until the message is in the Store if there is one.
func (c *Client) enqueue(ctx context.Context, p *pending) error {
	for {
		full, err := c.out.add(p)
		switch {
		case err != nil:
			return err
		case full == nil && p.number == 0:
			return nil
		case full == nil:
			err := c.record(ctx, p)
			c.out.recorded(p, err)
			return err
		}
		select {
		case <-full:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// record waits until a message is in the Store, but not for long after the end.
func (c *Client) record(ctx context.Context, p *pending) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(c.life, func() {
		t := time.AfterFunc(storeTime, func() { cancel(c.Err()) })
		<-ctx.Done()
		t.Stop()
	})
	defer stop()
	err := c.out.journal.put(ctx, p)
	if err != nil && c.life.Err() != nil && context.Cause(ctx) == c.Err() {
		return c.Err()
	}
	return err
}

// await waits for the answer to a message.
func (c *Client) await(ctx context.Context, p *pending) (Receipt, error) {
	select {
	case <-p.settled:
	case <-ctx.Done():
		c.out.failIf(p.frame.ID, func(p *pending) bool { return !p.told }, ctx.Err())
		<-p.settled
	}
	if p.err != nil {
		return Receipt{}, p.err
	}
	return p.receipt, nil
}
