package jsonmsg

import (
	"errors"
	"strings"
	"time"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
)

// verbs returns what a message of a registered session does, nil for an unknown
// type.
func verbs(verb []byte) func(*session, *work) error {
	switch string(verb) {
	case "send":
		return (*session).send
	case "ack":
		return (*session).ack
	case "room_send":
		return (*session).roomSend
	case "publish":
		return (*session).publish
	case "find_match":
		return (*session).findMatch
	case "cancel_match":
		return (*session).cancelMatch
	case "join_room":
		return (*session).joinRoom
	case "leave_room":
		return (*session).leaveRoom
	case "subscribe":
		return (*session).subscribe
	case "unsubscribe":
		return (*session).unsubscribe
	}
	return nil
}

// flagAck marks a message that its sender is told nothing of.
const flagAck uint8 = 1

func (s *session) send(w *work) error {
	to, err := s.name(w, "to", errInvalidAddr)
	if err != nil {
		return err
	}
	var opaque [4]frame.Value
	for i, name := range [...]string{"pub", "nonce", "ct", "id"} {
		if opaque[i], err = w.opaque(name); err != nil {
			return err
		}
	}
	w.out = frame.AppendDeliver(w.out[:0], s.own.addr, opaque[0], opaque[1], opaque[2], opaque[3])
	w.msg = relay.Message{To: address(to), Data: w.out, Note: w.id}
	return s.told(to, 0, w.id, s.port.Send(&w.msg), w)
}

func (s *session) ack(w *work) error {
	to, err := s.name(w, "to", errInvalidAddr)
	if err != nil {
		return err
	}
	if w.id == nil {
		return fieldError("id")
	}
	w.out = frame.AppendAck(w.out[:0], w.id, s.own.addr)
	w.msg = relay.Message{To: address(to), Flags: flagAck, Data: w.out}
	s.port.Send(&w.msg)
	return nil
}

// Settled tells the sender what became of a message on its way to the inbox.
func (s *session) Settled(r relay.Receipt) {
	w := newWork()
	defer w.free()
	if err := s.told(r.To.Name, r.Flags, r.Note, r.Outcome, w); err != nil {
		s.reply(frame.AppendError(w.out[:0], textOf(err), r.Note))
	}
}

// told tells the sender what became of a message; what it returns has to be
// answered. It is called from any goroutine.
func (s *session) told(to string, flags uint8, id frame.Value, o relay.Outcome, w *work) error {
	switch {
	case flags&flagAck != 0:
	case o.Status == relay.Stored:
		w.out = frame.AppendQueued(w.out[:0], to, id)
		s.reply(w.out)
	case o.Status == relay.Refused:
		return &relay.Refusal{Code: o.Code}
	}
	return nil
}

func (s *session) findMatch(w *work) error {
	game, err := s.name(w, "game", errInvalidGame)
	if err != nil {
		return err
	}
	return instead(s.port.Match(address(game)), errGames)
}

// Notify passes on what the relay has to say of games. That publications were
// dropped is nothing that this dialect tells.
func (s *session) Notify(n relay.Notice) {
	switch n.Kind {
	case relay.NoticeWaiting:
		s.reply(frame.AppendWaiting(nil, n.Name.Name))
	case relay.NoticeMatched:
		s.reply(frame.AppendMatched(nil, n.Name.Name, n.Peer.Name))
	}
}

func (s *session) cancelMatch(w *work) error {
	game, err := s.name(w, "game", errInvalidGame)
	if err != nil {
		return err
	}
	s.port.CancelMatch(address(game))
	s.reply(frame.AppendMatchCancelled(w.out[:0], game))
	return nil
}

func (s *session) joinRoom(w *work) error {
	room, err := s.name(w, "room", errInvalidRoom)
	if err != nil {
		return err
	}
	err = s.port.Join(address(room), func(members int) {
		s.reply(frame.AppendJoinedRoom(w.out[:0], room, members))
	})
	switch {
	case errors.Is(err, relay.ErrTooManyGroups):
		return errRooms
	case errors.Is(err, relay.ErrGroupFull):
		return errRoomFull
	}
	return err
}

func (s *session) leaveRoom(w *work) error {
	room, err := s.name(w, "room", errInvalidRoom)
	if err != nil {
		return err
	}
	s.port.Leave(address(room))
	s.reply(frame.AppendLeftRoom(w.out[:0], room))
	return nil
}

func (s *session) roomSend(w *work) error {
	room, err := s.name(w, "room", errInvalidRoom)
	if err != nil {
		return err
	}
	ct := w.in.Get("ct")
	switch {
	case !ct.IsString():
		return fieldError("ct")
	case !s.port.Member(address(room)):
		return errNotInRoom
	}
	w.out = frame.AppendRoomDeliver(w.out[:0], room, s.own.addr, ct)
	w.msg = relay.Message{To: address(room), Data: w.out}
	_, err = s.port.Publish(&w.msg, relay.PublishOptions{})
	return err
}

func (s *session) subscribe(w *work) error {
	filter, err := w.text("topic")
	if err != nil {
		return err
	}
	filter = strings.Clone(filter)
	return instead(s.port.Subscribe(address(filter), func() {
		s.reply(frame.AppendSubscribed(w.out[:0], filter))
	}), errSubscriptions)
}

func (s *session) unsubscribe(w *work) error {
	filter, err := w.text("topic")
	if err != nil {
		return err
	}
	s.port.Unsubscribe(address(filter))
	s.reply(frame.AppendUnsubscribed(w.out[:0], filter))
	return nil
}

func (s *session) publish(w *work) error {
	topic, err := w.text("topic")
	if err != nil {
		return err
	}
	ct := w.in.Get("ct")
	if !ct.IsString() {
		return fieldError("ct")
	}
	retain, err := w.flag("retain")
	if err != nil {
		return err
	}
	how := relay.RetainNo
	switch {
	case retain && ct.IsEmpty():
		how = relay.RetainClear
	case retain:
		how = relay.RetainValue
	}
	w.out = frame.AppendMessage(w.out[:0], topic, s.own.addr, ct)
	w.msg = relay.Message{To: address(topic), Data: w.out}
	_, err = s.port.PublishTopic(&w.msg, how)
	return err
}

// capabilities says what the relay can.
func (s *session) capabilities(w *work) {
	l := s.port.Limits()
	c := frame.Capabilities{
		Version: s.dialect.Version, Dialect: s.dialect.Name(), Transports: s.dialect.Transports,
		Features: []string{"acks", "matchmaking", "rooms", "topics", "retained"},
		Limits: frame.CapabilitiesLimits{
			MessageBytes:      l.MessageBytes,
			DatagramBytes:     s.dialect.DatagramBytes,
			MessagesPerSecond: max(0, l.MessageRate),
			MessageBurst:      max(0, l.MessageBurst),
			SourceConnections: max(0, l.SourceConnections),
			NameBytes:         s.dialect.NameBytes,
			TopicBytes:        l.TopicBytes,
			TopicLevels:       l.TopicLevels,
			Subscriptions:     max(0, l.Subscriptions),
			Rooms:             max(0, l.Groups),
			Matches:           max(0, l.Matches),
			RoomMembers:       max(0, l.GroupMembers),
			InboxMessages:     max(0, l.InboxMessages),
			InboxSeconds:      max(0, int64(l.InboxTTL/time.Second)),
		},
		LoadTier: s.port.Load().String(),
	}
	if s.dialect.Identity != nil && s.datagram == nil {
		c.Features = append(c.Features, "proof")
	}
	w.out = c.Append(w.out[:0])
	s.reply(w.out)
}
