package blind

import (
	"context"
	"strings"
	"time"
	"unsafe"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/blind/audit"
	"github.com/sotto-relay/sotto/transport"
)

// A session is the relay's side of one connection. Of its fields only id is read
// by others, and does not change.
type session struct {
	dialect Dialect
	port    *relay.Port
	id      string // in the audit log; empty: there is none
	route   frame.BlindRoute
	msg     relay.Message // the one that is being sent, so that none is allocated

	// Of the frame that is being sent, for the audit log.
	each func(relay.Session) // delivered; nil: there is no log
	to   []string            // ids of those whose queues it has entered

	// The stretch of time in which the connection has been over its rate.
	overSince, overLast time.Time
}

var _ relay.Metered = (*session)(nil)

// Receive takes one message. What is wrong with it is counted, and nobody told.
func (s *session) Receive(_ context.Context, k transport.Kind, msg []byte) error {
	switch {
	case k != transport.Binary:
		s.port.Ignored("text message")
	case len(msg) == 0:
		s.port.Ignored("empty message")
	case msg[0] == channelFrame:
		s.forward(msg)
	case msg[0] == channelControl:
		s.control(msg[1:])
	default:
		s.port.Ignored("unknown channel")
	}
	return nil
}

// forward sends a frame to the others who subscribe to its key. msg is the frame
// with the channel byte, as they get it.
func (s *session) forward(msg []byte) {
	defer s.route.Reset() // it borrows from msg
	header, err := frame.PeekHeader(msg[1:])
	if err == nil {
		err = s.route.Parse(header)
	}
	if err != nil {
		s.port.Ignored("malformed frame")
		return
	}
	if max(len(s.route.Key), len(s.route.EntityID)) > s.dialect.KeyBytes {
		s.port.Ignored("key too long")
		return
	}
	s.msg = relay.Message{To: address(s.route.Key), Data: msg}
	// A policy that refuses has the frame counted as refused.
	_, _ = s.port.Publish(&s.msg, relay.PublishOptions{Whole: true, Each: s.each})
	if len(s.to) > 0 {
		s.log(len(msg) - 1)
	}
	s.msg = relay.Message{}
}

// delivered notes that the frame that is being sent has entered a queue.
func (s *session) delivered(to relay.Session) {
	if to, ok := to.(*session); ok {
		s.to = append(s.to, to.id)
	}
}

// log logs the deliveries of the frame that was sent.
func (s *session) log(size int) {
	const keep = 4096 // of the memory for ids
	entity := s.msg.To.Name
	if string(s.route.EntityID) != string(s.route.Key) {
		entity = strings.Clone(s.port.Lead(address(s.route.EntityID)).Name) // it may be borrowed
	}
	s.dialect.Audit.Delivered(audit.Line{
		TS: time.Now().UnixMilli(), From: s.id, Entity: entity, Kind: string(s.route.Kind), Bytes: size,
	}, s.to)
	if s.to = s.to[:0]; cap(s.to) > keep {
		s.to = nil
	}
}

// How long a connection may be over its rate, without a pause, before it is
// closed.
const (
	overMost  = 10 * time.Second
	overPause = time.Second
)

// Excess drops a message that was too large, or over the rate. A connection that
// stays over the rate is closed: one that for ten seconds never was a second
// without a message that had to be dropped.
func (s *session) Excess(r *relay.Refusal, _ []byte) error {
	if r.Code != relay.CodeRateLimited {
		s.port.Ignored("too large")
		return nil
	}
	s.port.Ignored("over the rate")
	now := time.Now()
	if now.Sub(s.overLast) >= overPause {
		s.overSince = now
	}
	s.overLast = now
	if now.Sub(s.overSince) >= overMost {
		return &relay.Refusal{Code: relay.CodeRateLimited, Reason: "over the rate for too long"}
	}
	return nil
}

// Close has nothing to say: the close code does.
func (s *session) Close(error) {}

// address returns the address of a key without copying it: it changes with b, and
// is for a call that borrows it.
func address(b []byte) relay.Address {
	return relay.Address{Realm: relay.RealmBlind, Name: unsafe.String(unsafe.SliceData(b), len(b))}
}
