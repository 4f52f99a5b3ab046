package blind

import (
	"errors"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// control does what a control message says (spec blind.md, "Control"). One that
// is malformed does nothing.
func (s *session) control(b []byte) {
	var o frame.Object
	if o.Parse(b) != nil {
		s.port.Ignored("malformed control")
		return
	}
	switch string(o.Text(o.Get("op"))) {
	case "subscribe":
		s.subscribe(&o)
	case "unsubscribe":
		s.keys(&o, func(key []byte) bool {
			s.port.Leave(address(key))
			return true
		})
	case "rotate":
		s.rotate(o.Text(o.Get("from")), o.Text(o.Get("to")))
	default:
		s.port.Ignored("malformed control")
	}
}

// keys calls f for each key of a subscribe or unsubscribe, until that returns
// false.
func (s *session) keys(o *frame.Object, f func(key []byte) bool) {
	ids := o.Get("entityIds")
	if !ids.IsArray() {
		s.port.Ignored("malformed control")
		return
	}
	for id := range ids.Elements() {
		key := o.Text(id)
		switch {
		case len(key) == 0: // skipped, as the spec says
		case len(key) > s.dialect.KeyBytes:
			s.port.Ignored("key too long")
		case !f(key):
			return
		}
	}
}

// subscribe subscribes to keys, in order, until the limit.
func (s *session) subscribe(o *frame.Object) {
	const most = 4096 // refusals: one message is not to keep a policy busy for ever
	refused := 0
	s.keys(o, func(key []byte) bool {
		err := s.port.Join(address(key), nil)
		switch {
		case err == nil:
			return true
		case relay.AsRefusal(err).Code == relay.CodeQuota:
			s.port.Ignored("too many subscriptions")
			return false
		}
		s.port.Ignored("subscription refused")
		refused++
		return refused < most
	})
}

// Reasons of a rotate-denied.
const (
	reasonConflict      = "conflict"
	reasonLimit         = "limit"
	reasonNotAuthorized = "not-authorized"
)

// rotate makes one key an alias of another, and answers.
func (s *session) rotate(from, to []byte) {
	most := s.dialect.KeyBytes
	switch {
	case len(from) == 0 || len(to) == 0 || string(from) == string(to):
		s.port.Ignored("malformed control")
		return
	case len(from) > most || len(to) > most:
		s.port.Ignored("key too long")
		return
	case s.dialect.Rotate == RotateSubscriber && !s.port.Member(address(from)):
		s.answer("rotate-denied", from, to, reasonNotAuthorized)
		return
	}
	lead, err := s.port.Move(address(from), address(to), s.dialect.Grace)
	switch {
	case err == nil:
		s.answer("rotated", from, to, "")
	case errors.Is(err, relay.ErrMoveConflict):
		s.answer("rotate-denied", from, []byte(lead.Name), reasonConflict)
	case errors.Is(err, relay.ErrTooManyAliases):
		s.answer("rotate-denied", from, to, reasonLimit)
	default: // the policy's
		s.answer("rotate-denied", from, to, reasonNotAuthorized)
	}
}

// answer tells the peer what became of a rotate. An empty reason is left out.
func (s *session) answer(op string, from, to []byte, reason string) {
	b := appendRotate([]byte{channelControl}, op, from, to)
	if reason != "" {
		b = append(append(append(b[:len(b)-1], `,"reason":"`...), reason...), `"}`...)
	}
	s.port.Reply(transport.Binary, b)
}

// appendRotate appends a control message about two keys.
func appendRotate(dst []byte, op string, from, to []byte) []byte {
	dst = append(append(append(dst, `{"op":"`...), op...), `","from":`...)
	dst = frame.AppendText(dst, from)
	dst = append(dst, `,"to":`...)
	return append(frame.AppendText(dst, to), '}')
}
