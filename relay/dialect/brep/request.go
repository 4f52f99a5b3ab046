package brep

import (
	"context"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
)

// What a REQUEST can be refused with beside what the relay says. None is changed.
var (
	errUnknownVerb   = &relay.Refusal{Code: relay.CodeUnknownVerb}
	errTooLong       = &relay.Refusal{Code: relay.CodeTooLarge, Reason: "request too large"}
	errNoRequest     = &relay.Refusal{Code: relay.CodeMalformed, Reason: "not a request"}
	errRooms         = &relay.Refusal{Code: relay.CodeQuota, Reason: "too many rooms"}
	errRoomFull      = &relay.Refusal{Code: relay.CodeQuota, Reason: "room full"}
	errGames         = &relay.Refusal{Code: relay.CodeQuota, Reason: "too many games"}
	errSubscriptions = &relay.Refusal{Code: relay.CodeQuota, Reason: "too many subscriptions"}
	errBlocks        = &relay.Refusal{Code: relay.CodeQuota, Reason: "too many blocked keys"}
	errCard          = &relay.Refusal{Code: relay.CodeMalformed, Reason: "not a card"}
	errCardTime      = &relay.Refusal{Code: relay.CodeExpired, Reason: "card is not valid now"}
	errCardSignature = &relay.Refusal{Code: relay.CodeBadSignature, Reason: "card is not signed"}
	errCardOwner     = &relay.Refusal{Code: relay.CodeDenied, Reason: "card of another identity"}
	errCardSerial    = &relay.Refusal{Code: relay.CodeDenied, Reason: "a card with a higher serial is here"}
	errNoCard        = &relay.Refusal{Code: relay.CodeNotFound}
)

// instead returns the error that a verb has for a refusal with CodeQuota.
func instead(err error, quota *relay.Refusal) error {
	if err != nil && relay.AsRefusal(err).Code == relay.CodeQuota {
		return quota
	}
	return err
}

// A request is a REQUEST: an object of spec json.md with a number.
type request struct {
	in     frame.Object
	verb   string
	number int64
}

func readRequest(payload []byte) (*request, error) {
	if len(payload) > frame.MaxRequest {
		return nil, errTooLong
	}
	q := new(request)
	if q.in.Parse(payload) != nil {
		return nil, errNoRequest
	}
	q.verb = string(q.in.Text(q.in.Get("t")))
	var err error
	if q.number, err = strconv.ParseInt(string(q.in.Get("req")), 10, 64); err != nil || q.number < 1 {
		return nil, errNoRequest
	}
	return q, nil
}

// text returns a field that has to be a string.
func (q *request) text(field string) (string, error) {
	v := q.in.Get(field)
	if !v.IsString() {
		return "", &relay.Refusal{Code: relay.CodeMalformed, Reason: "invalid field: " + field}
	}
	return string(q.in.Text(v)), nil
}

// name returns a field that has to name a room or a game.
func (q *request) name(field string) (string, error) {
	s, err := q.text(field)
	if err == nil && !frame.IsName(s, frame.MaxName) {
		err = &relay.Refusal{Code: relay.CodeMalformed, Reason: "invalid " + field}
	}
	return s, err
}

// key returns the field "key", which has to be one in hex.
func (q *request) key() (crypto.PublicKey, error) {
	s, err := q.text("key")
	if err != nil {
		return crypto.PublicKey{}, err
	}
	k, err := crypto.ParsePublicKey(s)
	if err != nil {
		err = &relay.Refusal{Code: relay.CodeMalformed, Reason: "invalid key"}
	}
	return k, err
}

// verbs returns what a verb does, nil for an unknown one. Each has answered when it
// returns nil.
func verbs(verb string) func(*session, context.Context, *request) error {
	switch verb {
	case "capabilities":
		return (*session).capabilities
	case "auth":
		return (*session).auth
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
	case "put_card":
		return (*session).putCard
	case "get_card":
		return (*session).getCard
	case "block":
		return (*session).block
	case "unblock":
		return (*session).unblock
	case "attach":
		return (*session).attach
	case "erase":
		return (*session).erase
	}
	return nil
}

// request answers a REQUEST: with a RESPONSE, or with an ERROR if it has no number.
func (s *session) request(ctx context.Context, f *frame.Brep) {
	q, err := readRequest(f.Payload)
	if err != nil {
		r := relay.AsRefusal(err)
		s.replyError(f.ID, r.Code, r.Sentence())
		return
	}
	err = errUnknownVerb
	if do := verbs(q.verb); do != nil {
		err = do(s, ctx, q)
	}
	if err != nil {
		r := relay.AsRefusal(err)
		s.reply(frame.TypeResponse, 0, frame.AppendRefusal(nil, q.number, frame.Code(r.Code), r.Sentence()))
	}
}

// respond answers a request that has been done.
func (s *session) respond(q *request, answer []byte) {
	s.reply(frame.TypeResponse, 0, frame.AppendResponse(nil, q.number, answer))
}

// done answers one that has nothing to say.
func (s *session) done(q *request) error {
	s.respond(q, frame.AppendDone(nil, q.verb))
	return nil
}

// auth renews the authorization of the session with a token.
func (s *session) auth(_ context.Context, q *request) error {
	token, err := q.text("token")
	if err != nil {
		return err
	}
	if err := s.port.Renew(token); err != nil {
		return err
	}
	return s.done(q)
}

func (s *session) findMatch(_ context.Context, q *request) error {
	game, err := q.name("game")
	if err != nil {
		return err
	}
	s.asked = q
	defer func() { s.asked = nil }()
	return instead(s.port.Match(name(game)), errGames)
}

func (s *session) cancelMatch(_ context.Context, q *request) error {
	game, err := q.name("game")
	if err != nil {
		return err
	}
	s.port.CancelMatch(name(game))
	s.respond(q, frame.AppendMatchCancelled(nil, game))
	return nil
}

// match passes on what the relay has to say of a game: in answer to findMatch,
// which is waiting for it, or unasked.
func (s *session) match(n *relay.Notice) {
	answer := frame.AppendWaiting(nil, n.Name.Name)
	if n.Kind == relay.NoticeMatched {
		answer = frame.AppendMatched(nil, n.Name.Name, hex.EncodeToString([]byte(n.Peer.Name)))
	}
	if n.Asked {
		s.respond(s.asked, answer)
	} else {
		s.reply(frame.TypeResponse, 0, answer)
	}
}

func (s *session) capabilities(_ context.Context, q *request) error {
	l := s.port.Limits()
	c := frame.Capabilities{
		Version: s.dialect.Version, Dialect: s.dialect.Name(), Transports: s.dialect.Transports,
		Features: []string{"receipts", "matchmaking", "rooms", "topics", "retained", "cards", "blocks"},
		Limits: frame.CapabilitiesLimits{
			MessageBytes:      l.MessageBytes - frame.BrepHeaderSize,
			MessagesPerSecond: max(0, l.MessageRate),
			MessageBurst:      max(0, l.MessageBurst),
			SourceConnections: max(0, l.SourceConnections),
			NameBytes:         frame.MaxName,
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
	if s.dialect.Mesh != nil {
		c.Features = append(c.Features, "mesh")
	}
	if s.dialect.Durable {
		c.Features = append(c.Features, "durable")
	}
	s.respond(q, c.Append(nil))
	return nil
}
