package mesh

import (
	"encoding/binary"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// A course is what the order of messages is kept on.
type course struct{ from, to crypto.PublicKey }

// A turn is a message that was refused and will come again, here or another way.
type turn struct {
	key  message
	code frame.Code
	ping uint64 // the PONG comes when the other relay knows
}

// turnAway has those refused that follow a message which was: they must not come
// before it if they could be taken by now. That ends when the other relay knows.
func (l *link) turnAway(on course, key message, code frame.Code) {
	if _, before := l.away[on]; before || key.id == (relay.ID{}) || len(l.away) >= windowMessages {
		return
	}
	l.pings++
	l.away[on] = turn{key, code, l.pings}
	f := frame.Brep{Type: frame.TypePing, Sender: l.m.self, Payload: binary.BigEndian.AppendUint64(nil, l.pings)}
	l.port.Reply(transport.Binary, f.Append(nil))
}

// turnedAway says with which code a message is refused for that; 0: it is not.
func (l *link) turnedAway(on course, key message) frame.Code {
	t, ok := l.away[on]
	if ok && t.key == key { // it is sent again
		delete(l.away, on)
		return 0
	}
	return t.code
}

// heardOf takes PONG.
func (l *link) heardOf(pong []byte) {
	if len(pong) != 8 {
		return
	}
	n := binary.BigEndian.Uint64(pong)
	for on, t := range l.away {
		if t.ping <= n {
			delete(l.away, on)
		}
	}
}
