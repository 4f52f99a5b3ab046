package brep

import (
	"context"
	"errors"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
)

// Names of rooms, topics and games are a realm of their own, beside the keys.
func name(s string) relay.Address { return relay.Address{Realm: relay.RealmNative, Name: s} }

func (s *session) joinRoom(_ context.Context, q *request) error {
	room, err := q.name("room")
	if err != nil {
		return err
	}
	err = s.port.Join(name(room), func(members int) {
		s.respond(q, frame.AppendJoinedRoom(nil, room, members))
	})
	switch {
	case errors.Is(err, relay.ErrTooManyGroups):
		return errRooms
	case errors.Is(err, relay.ErrGroupFull):
		return errRoomFull
	}
	return err
}

func (s *session) leaveRoom(_ context.Context, q *request) error {
	room, err := q.name("room")
	if err != nil {
		return err
	}
	s.port.Leave(name(room))
	s.respond(q, frame.AppendLeftRoom(nil, room))
	return nil
}

// roomSend brings a ROOM_SEND to the other members of its room.
func (s *session) roomSend(f *frame.Brep, msg []byte) error {
	return s.publication(f, msg, func(m *relay.Message, _ []byte) error {
		if !s.port.Member(m.To) {
			return &relay.Refusal{Code: relay.CodeNotInRoom}
		}
		_, err := s.port.Publish(m, relay.PublishOptions{})
		return err
	})
}

// publication takes a frame for a name, which publish brings to whom it is for.
func (s *session) publication(f *frame.Brep, msg []byte, publish func(m *relay.Message, content []byte) error) error {
	s.sent.turn.Lock()
	defer s.sent.turn.Unlock()
	if on, err := s.admit(f); !on {
		return err
	}
	p, err := frame.DecodePublication(f.Payload)
	if err == nil {
		m := &s.msg
		*m = relay.Message{To: name(borrow(p.Name)), ID: f.ID, Form: s.form, Flags: f.Flags, Data: msg}
		err = publish(m, p.Content)
		*m = relay.Message{} // it borrows from msg
	} else {
		err = &relay.Refusal{Code: relay.CodeMalformed, Err: err}
	}
	o := relay.Outcome{Status: relay.Delivered}
	if err != nil {
		o = relay.Outcome{Code: relay.AsRefusal(err).Code}
	}
	s.answer(f.ID, f.Flags, o)
	return nil
}
