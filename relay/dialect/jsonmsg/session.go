package jsonmsg

import (
	"bytes"
	"context"
	"sync"
	"unsafe"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// A session is the relay's side of one connection. Settled and Notify read no
// more of it than port.
type session struct {
	dialect Dialect
	port    *relay.Port
	kinds   bool          // the medium tells text from binary
	own     *registration // nil: not registered
	pending *registration // waits for a proof or, in datagrams, for its token
	late    func()        // cancels the time limit of a proof
	daily   func()        // cancels what notes the use of names
	ending  *ending       // what Receive ended the connection with

	datagram transport.Datagram // nil on other media
	proven   bool               // what the port has been told of it
	greeted  bool               // a token has been sent
}

var (
	_ relay.Metered  = (*session)(nil)
	_ relay.Settler  = (*session)(nil)
	_ relay.Notified = (*session)(nil)
)

// An ending is why a message ended the connection, and its id.
type ending struct {
	why *relay.Refusal
	id  frame.Value
}

// A work is the memory for one message. It is not a session's, of which most are
// idle.
type work struct {
	in   frame.Object
	id   frame.Value // of the message, if it has one that is a string
	size int         // of the message in bytes
	out  []byte
	msg  relay.Message
}

// keepOut bounds what a work keeps for the next message.
const keepOut = 128 << 10

var works = sync.Pool{New: func() any { return new(work) }}

func newWork() *work { return works.Get().(*work) }

// free lets go of the message.
func (w *work) free() {
	w.in.Reset()
	w.id, w.msg, w.out = nil, relay.Message{}, w.out[:0]
	if cap(w.out) > keepOut {
		w.out = nil
	}
	works.Put(w)
}

// read parses a message.
func (w *work) read(msg []byte) error {
	w.size = len(msg)
	if w.in.Parse(msg) != nil {
		return errInvalidJSON
	}
	if id := w.in.Get("id"); id.IsString() {
		w.id = id
	}
	return nil
}

// Receive takes one message. What is wrong with it is answered; only what cannot
// go on ends the connection.
func (s *session) Receive(ctx context.Context, k transport.Kind, msg []byte) error {
	w := newWork()
	defer w.free()
	var err error = errBinary
	if !s.kinds || k == transport.Text {
		if err = w.read(msg); err == nil {
			err = s.handle(ctx, w)
		}
	}
	if err == nil {
		return nil
	}
	if r := relay.AsRefusal(err); r.Close != 0 {
		s.ending = &ending{r, bytes.Clone(w.id)} // for Close, which tells why
		return err
	}
	s.reply(frame.AppendError(w.out[:0], textOf(err), w.id))
	return nil
}

func (s *session) handle(ctx context.Context, w *work) error {
	verb := w.in.Text(w.in.Get("t"))
	if s.datagram != nil {
		if on, err := s.heard(ctx, w, string(verb) == "register"); !on {
			return err
		}
	}
	switch string(verb) {
	case "register":
		return s.register(ctx, w)
	case "proof":
		return s.proof(ctx, w)
	case "capabilities":
		s.capabilities(w)
		return nil
	}
	do := verbs(verb)
	switch {
	case do == nil:
		return errUnknownType
	case s.own == nil:
		return errNotRegistered
	}
	return do(s, w)
}

// Excess answers for a message that was not received.
func (s *session) Excess(r *relay.Refusal, msg []byte) error {
	if r.Code == relay.CodeTooLarge && s.datagram == nil {
		return r
	}
	w := newWork()
	defer w.free()
	_ = w.read(msg) // for the id
	s.reply(frame.AppendError(w.out[:0], textOf(r), w.id))
	return nil
}

// Close tells the peer why the relay ends the connection.
func (s *session) Close(err error) {
	r := relay.AsRefusal(err)
	var id frame.Value
	if s.ending != nil && s.ending.why == r { // else something else came first
		id = s.ending.id
	}
	switch {
	case r.Code == relay.CodeNone, r.Code == relay.CodeGoingAway:
		return
	case r.Code == relay.CodeNotAuthenticated && s.own == nil:
		r = errNotRegistered // in time
	}
	s.reply(frame.AppendError(nil, textOfRefusal(r), id))
}

// reply sends a message, of which nothing is kept.
func (s *session) reply(msg []byte) { s.port.Reply(transport.Text, msg) }

// text returns what a field that has to be a string says. It is borrowed from the
// message.
func (w *work) text(name string) (string, error) {
	v := w.in.Get(name)
	if !v.IsString() {
		return "", fieldError(name)
	}
	return borrow(w.in.Text(v)), nil
}

// opaque returns a field that may be missing, and else has to be a string, as it
// stands in the message. Null counts as missing, as clients in other languages
// send it.
func (w *work) opaque(name string) (frame.Value, error) {
	v := w.in.Get(name)
	switch {
	case v == nil, v.IsNull():
		return nil, nil
	case !v.IsString():
		return nil, fieldError(name)
	}
	return v, nil
}

// flag returns a field that may be missing, and else has to be true or false.
func (w *work) flag(name string) (bool, error) {
	v := w.in.Get(name)
	b, ok := v.Bool()
	if v != nil && !ok {
		return false, fieldError(name)
	}
	return b, nil
}

// name returns the name of an address, a room or a game, borrowed from the
// message; invalid is the error for one that is none.
func (s *session) name(w *work, field string, invalid error) (string, error) {
	name, err := w.text(field)
	if err == nil && !frame.IsName(name, s.dialect.NameBytes) {
		err = invalid
	}
	return name, err
}

func address(name string) relay.Address {
	return relay.Address{Realm: relay.RealmJSON, Name: name}
}

// borrow returns b as a string for as long as b is left alone.
func borrow(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
