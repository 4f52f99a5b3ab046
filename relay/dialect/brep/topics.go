package brep

import (
	"context"
	"unicode/utf8"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
)

func (s *session) subscribe(_ context.Context, q *request) error {
	filter, err := q.text("topic")
	if err != nil {
		return err
	}
	return instead(s.port.Subscribe(name(filter), func() {
		s.respond(q, frame.AppendSubscribed(nil, filter))
	}), errSubscriptions)
}

func (s *session) unsubscribe(_ context.Context, q *request) error {
	filter, err := q.text("topic")
	if err != nil {
		return err
	}
	s.port.Unsubscribe(name(filter))
	s.respond(q, frame.AppendUnsubscribed(nil, filter))
	return nil
}

// publish brings a PUBLISH to those who have subscribed to its topic.
func (s *session) publish(f *frame.Brep, msg []byte) error {
	return s.publication(f, msg, func(m *relay.Message, content []byte) error {
		how := relay.RetainNo
		switch {
		case !utf8.ValidString(m.To.Name):
			return &relay.Refusal{Code: relay.CodeInvalidTopic}
		case m.Flags&frame.FlagRetain == 0:
		case len(content) == 0:
			how = relay.RetainClear
		default:
			how = relay.RetainValue
		}
		_, err := s.port.PublishTopic(m, how)
		return err
	})
}

// gap tells that publications were dropped for this session.
func (s *session) gap(n *relay.Notice) {
	s.reply(frame.TypeResponse, 0, frame.AppendGap(nil, n.Name.Name))
}
