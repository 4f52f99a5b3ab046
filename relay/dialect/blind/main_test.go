package blind

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/blind/audit"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
)

func TestMain(m *testing.M) {
	if arg := os.Getenv(loadEnv); arg != "" {
		os.Exit(runLoad(arg))
	}
	goleak.VerifyTestMain(m)
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

// A vector is one case of testdata/blind_frames.json.
type vector struct {
	Name       string
	Valid      bool
	Frame      string
	RoutingKey string `json:"routing_key"`
	AuditKey   string `json:"audit_key"`
	Kind       string
}

func vectors(t testing.TB) []vector {
	t.Helper()
	data, err := os.ReadFile("testdata/blind_frames.json")
	require.NoError(t, err)
	var file struct{ Cases []vector }
	require.NoError(t, json.Unmarshal(data, &file))
	require.NotEmpty(t, file.Cases)
	return file.Cases
}

// A rig is a relay that speaks blind.
type rig struct {
	t testing.TB
	*relay.Server
	dialect Dialect
	log     *audit.Log
	peers   map[string]*peer

	mu  sync.Mutex
	ids map[string]uint64 // of connections, by name
}

// newRig returns a rig whose connections have their names as ids. set may be nil.
func newRig(t testing.TB, set func(*rig)) *rig {
	r := &rig{
		t:      t,
		Server: &relay.Server{Logger: slog.New(slog.DiscardHandler)},
		log:    new(audit.Log),
		peers:  make(map[string]*peer),
		ids:    make(map[string]uint64),
	}
	r.dialect = Dialect{Audit: r.log, ConnID: func(c relay.ConnInfo) string {
		r.mu.Lock()
		defer r.mu.Unlock()
		name := c.Value(nameKey{}).(string)
		r.ids[name] = c.ID
		return name
	}}
	if set != nil {
		set(r)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// kick ends the connection with a name.
func (r *rig) kick(name string) {
	r.t.Helper()
	r.mu.Lock()
	id := r.ids[name]
	r.mu.Unlock()
	require.Equal(r.t, 1, r.Kick(relay.Match{Conn: id}, nil))
}

type nameKey struct{}

// A named is a connection with a name.
type named struct {
	transport.Conn
	transport.TryWriter
	transport.Batcher
	name string
}

func (n named) Value(key any) any {
	if key == (nameKey{}) {
		return n.name
	}
	return n.Conn.Value(key)
}

// dial connects under a name, with room for so many messages on the way to the
// peer.
func (r *rig) dial(name string, room int) *peer {
	near, far := pipe.Options{Messages: room}.New()
	r.Speak(r.dialect).HandleConn(named{far, far.(transport.TryWriter), far.(transport.Batcher), name})
	p := &peer{Conn: near, t: r.t, name: name}
	r.peers[name] = p
	return p
}

// as returns the peer with a name, connected if it is new.
func (r *rig) as(name string) *peer {
	if p := r.peers[name]; p != nil {
		return p
	}
	return r.dial(name, 0)
}

// balance checks that every copy is accounted for.
func (r *rig) balance() relay.Stats {
	r.t.Helper()
	st := r.Stats()
	require.Equal(r.t, int64(st.Accepted), int64(st.Delivered+st.Dropped)+st.Held, "%+v", st)
	return st
}

// ignored returns what was ignored, without the dialect's name.
func (r *rig) ignored() map[string]uint64 {
	ignored := make(map[string]uint64)
	for what, n := range r.Stats().Ignored {
		ignored[strings.TrimPrefix(what, "blind: ")] = n
	}
	return ignored
}

// A peer is the far end of a connection.
type peer struct {
	transport.Conn
	t    testing.TB
	name string
}

func (p *peer) write(k transport.Kind, msg []byte) {
	p.t.Helper()
	require.NoError(p.t, p.SetWriteDeadline(time.Now().Add(time.Hour)))
	for msgs := [][]byte{msg}; len(msgs) > 0; {
		n, err := p.Write(k, msgs)
		require.NoError(p.t, err)
		msgs = msgs[n:]
	}
}

// say writes a control message, if text is JSON, or the frame that text stands
// for.
func (p *peer) say(text string) {
	p.t.Helper()
	p.write(transport.Binary, message(text))
}

// hear returns the next message as say takes it. It checks that a frame came byte
// for byte.
func (p *peer) hear() string {
	p.t.Helper()
	require.NoError(p.t, p.SetReadDeadline(time.Now().Add(time.Hour)))
	k, msg, err := p.Read()
	require.NoError(p.t, err)
	require.Equal(p.t, transport.Binary, k)
	text := shorthand(p.t, msg)
	require.Equal(p.t, message(text), msg)
	return text
}

// silent checks that nothing comes within a minute.
func (p *peer) silent() {
	p.t.Helper()
	p.silentFor(time.Minute)
}

func (p *peer) silentFor(d time.Duration) {
	p.t.Helper()
	require.NoError(p.t, p.SetReadDeadline(time.Now().Add(d)))
	_, msg, err := p.Read()
	require.ErrorIs(p.t, err, os.ErrDeadlineExceeded, "%s got %q", p.name, msg)
	require.NoError(p.t, p.SetReadDeadline(time.Time{}))
}

// rest reads until the end of the connection, and returns how many messages came
// and the close code.
func (p *peer) rest() (n int, code uint16) {
	p.t.Helper()
	require.NoError(p.t, p.SetReadDeadline(time.Now().Add(time.Hour)))
	for ; ; n++ {
		_, _, err := p.Read()
		var ce *transport.CloseError
		switch {
		case err == nil:
		case errors.As(err, &ce):
			return n, ce.Code
		default:
			require.ErrorIs(p.t, err, io.EOF)
			return n, 0
		}
	}
}

// message returns a control message, if text is JSON, else a frame: "KEY TEXT", or
// "ENTITY@ROUTE TEXT", or "KIND:KEY TEXT". What is unusual about a header is not
// said in this way.
func message(text string) []byte {
	if strings.HasPrefix(text, "{") {
		return append([]byte{channelControl}, text...)
	}
	key, body, _ := strings.Cut(text, " ")
	h := frame.BlindHeader{Kind: frame.BlindUpdate, Sender: "s", Seq: 1, Nonce: "n", TS: 1}
	if kind, rest, ok := strings.Cut(key, ":"); ok {
		h.Kind, key = frame.BlindKind(kind), rest
	}
	h.EntityID, h.Route, _ = strings.Cut(key, "@")
	return frame.AppendBlind([]byte{channelFrame}, h.Append(nil), []byte("signature"), []byte(body))
}

func shorthand(t testing.TB, msg []byte) string {
	t.Helper()
	if msg[0] == channelControl {
		return string(msg[1:])
	}
	f, err := frame.ParseBlind(msg[1:])
	require.NoError(t, err)
	key := f.Header.EntityID
	if f.Header.Route != "" {
		key += "@" + f.Header.Route
	}
	if f.Header.Kind != frame.BlindUpdate {
		key = string(f.Header.Kind) + ":" + key
	}
	return key + " " + string(f.Ciphertext)
}

// A turn is what somebody says and what they hear next; "" is nothing.
type turn struct{ who, says, hears string }

// play plays turns in a rig; afterwards nobody hears anything.
func play(t *testing.T, set func(*rig), turns []turn) *rig {
	t.Helper()
	r := newRig(t, set)
	for i, turn := range turns {
		p := r.as(turn.who)
		if turn.says != "" {
			p.say(turn.says)
			synctest.Wait()
		}
		if turn.hears != "" {
			require.Equal(t, turn.hears, p.hear(), "turn %d", i)
		}
	}
	for _, p := range r.peers {
		p.silent()
	}
	r.balance()
	return r
}

// subscribe, unsubscribe and rotate are control messages.
func subscribe(keys ...string) string   { return keysMessage("subscribe", keys) }
func unsubscribe(keys ...string) string { return keysMessage("unsubscribe", keys) }

func keysMessage(op string, keys []string) string {
	ids, _ := json.Marshal(keys)
	return `{"op":"` + op + `","entityIds":` + string(ids) + `}`
}

func rotate(from, to string) string { return `{"op":"rotate","from":"` + from + `","to":"` + to + `"}` }
func rotated(from, to string) string {
	return `{"op":"rotated","from":"` + from + `","to":"` + to + `"}`
}

func denied(from, to, reason string) string {
	return `{"op":"rotate-denied","from":"` + from + `","to":"` + to + `","reason":"` + reason + `"}`
}

// deliveries returns the lines of the audit log as "FROM>TO ENTITY KIND BYTES".
func (r *rig) deliveries() (lines []string) {
	for _, l := range r.log.Recent() {
		b := l.Append(nil)
		for _, cut := range []string{`{"ts":`, `,"fromConnId":"`, `","toConnId":"`, `","entityId":"`, `","kind":"`, `","bytes":`, `}`} {
			b = bytes.Replace(b, []byte(cut), []byte(" "), 1)
		}
		f := strings.Fields(string(b))
		lines = append(lines, f[1]+">"+f[2]+" "+strings.Join(f[3:], " "))
	}
	return lines
}
