package frame

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestJSONMessages: the examples of spec json.md, byte for byte, and what is
// left out.
func TestJSONMessages(t *testing.T) {
	v := func(s string) Value { return Value(s) }
	for want, got := range map[string][]byte{
		`{"t":"deliver","from":"alice","pub":"p","nonce":"n","ct":"c","id":"m1"}`: AppendDeliver(nil, "alice", v(`"p"`), v(`"n"`), v(`"c"`), v(`"m1"`)),
		`{"t":"deliver","from":"a\"\\b"}`:                                         AppendDeliver(nil, `a"\b`, nil, nil, nil, nil),
		`{"t":"deliver","from":"alice","ct":""}`:                                  AppendDeliver(nil, "alice", nil, nil, v(`""`), nil),
		`{"t":"deliver","from":"alice","nonce":"\u00e9"}`:                         AppendDeliver(nil, "alice", nil, v(`"\u00e9"`), nil, nil),
		`{"t":"ack","id":"m1","from":"bob"}`:                                      AppendAck(nil, v(`"m1"`), "bob"),
		`{"t":"queued","to":"bob"}`:                                               AppendQueued(nil, "bob", nil),
		`{"t":"queued","to":"bob","id":"m1"}`:                                     AppendQueued(nil, "bob", v(`"m1"`)),
		`{"t":"error","msg":"not registered"}`:                                    AppendError(nil, "not registered", nil),
		`{"t":"error","msg":"not registered","id":"m1"}`:                          AppendError(nil, "not registered", v(`"m1"`)),
		`{"t":"registered","addr":"alice","queued":0}`:                            AppendRegistered(nil, "alice", "", 0),
		`{"t":"registered","addr":"alice","token":"00ff","queued":500}`:           AppendRegistered(nil, "alice", "00ff", 500),
		`{"t":"waiting","game":"pong"}`:                                           AppendWaiting(nil, "pong"),
		`{"t":"matched","game":"pong","peer":"bob"}`:                              AppendMatched(nil, "pong", "bob"),
		`{"t":"match_cancelled","game":"pong"}`:                                   AppendMatchCancelled(nil, "pong"),
		`{"t":"joined_room","room":"r","members":2}`:                              AppendJoinedRoom(nil, "r", 2),
		`{"t":"left_room","room":"r"}`:                                            AppendLeftRoom(nil, "r"),
		`{"t":"room_deliver","room":"r","from":"alice","ct":"c"}`:                 AppendRoomDeliver(nil, "r", "alice", v(`"c"`)),
		`{"t":"subscribed","topic":"a/#"}`:                                        AppendSubscribed(nil, "a/#"),
		`{"t":"unsubscribed","topic":"a/#"}`:                                      AppendUnsubscribed(nil, "a/#"),
		`{"t":"message","topic":"a\u0001","from":"b","ct":"c","retained":false}`:  AppendMessage(nil, "a\x01", "b", v(`"c"`)),
		`{"t":"message","topic":"a","from":"b","ct":"c","retained":true}`:         AppendRetained(nil, AppendMessage(nil, "a", "b", v(`"c"`))),
		`{"t":"capabilities","load_tier":"degraded"}`:                             AppendLoadTier(nil, "degraded"),
		`{"t":"challenge","relay":"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","epk":"AgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",` +
			`"nonce":"AwAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA","box":"BAUG"}`: AppendChallenge(nil, [32]byte{1}, [32]byte{2}, [24]byte{3}, []byte{4, 5, 6}),
	} {
		assert.Equal(t, want, string(got))
		var o Object
		require.NoError(t, o.Parse(got))
	}
	// Appending leaves alone what is there, and shares no memory with it.
	head := []byte("head")
	assert.Equal(t, `head{"t":"waiting","game":"g"}`, string(AppendWaiting(head[:4:4], "g")))
	assert.Equal(t, `head{"t":"message","topic":"t","from":"f","ct":"","retained":true}`,
		string(AppendRetained(head[:4:4], AppendMessage(nil, "t", "f", v(`""`)))))
}

func TestCapabilities(t *testing.T) {
	c := Capabilities{
		Version: "1", Dialect: "json", Transports: []string{"tcp", "ws"}, LoadTier: "normal",
		Limits: CapabilitiesLimits{MessageBytes: 65536, MessagesPerSecond: 20},
	}
	assert.Equal(t, `x{"t":"capabilities","version":"1","dialect":"json","transports":["tcp","ws"],"features":[],`+
		`"limits":{"message_bytes":65536,"datagram_bytes":0,"messages_per_second":20,"message_burst":0,"source_connections":0,`+
		`"name_bytes":0,"topic_bytes":0,"topic_levels":0,"subscriptions":0,"rooms":0,"matches":0,"room_members":0,`+
		`"inbox_messages":0,"inbox_seconds":0},"load_tier":"normal"}`, string(c.Append([]byte("x"))))
}

// FuzzAppendText: every text comes back, for any reader of JSON.
func FuzzAppendText(f *testing.F) {
	for _, s := range []string{"", "alice", `"\`, "\x00\x1f\x7f\n", "\u2028é𝄞<>&"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			return
		}
		quoted := AppendText(nil, s)
		require.Equal(t, string(quoted), string(AppendText(nil, []byte(s))))
		var got string
		require.NoError(t, json.Unmarshal(quoted, &got))
		require.Equal(t, s, got)
		var o Object
		require.NoError(t, o.Parse([]byte(`{"s":`+string(quoted)+`}`)))
		require.Equal(t, s, string(o.Text(o.Get("s"))))
	})
}

func TestNextJSON(t *testing.T) {
	const max = 100
	for _, c := range []struct {
		in      string
		skip, n int
		whole   bool
		err     error
	}{
		{"", 0, 0, false, nil},
		{"\x00\x00\x00", 0, 0, false, nil},
		{"\x00\x00\x00\x00", 4, 0, true, nil},
		{"\x00\x00\x00\x00{", 4, 0, true, nil},
		{"\x00\x00\x00\x02", 0, 0, false, nil},
		{"\x00\x00\x00\x02{", 0, 0, false, nil},
		{"\x00\x00\x00\x02{}", 4, 2, true, nil},
		{"\x00\x00\x00\x02{}\x00", 4, 2, true, nil},
		{"\x00\x00\x00\x64" + strings.Repeat("x", 100), 4, 100, true, nil},
		{"\x00\x00\x00\x65", 4, 101, false, ErrTooLarge},
		{"\x80\x00\x00\x00", 4, 1 << 31, false, ErrTooLarge},
		{"\xff\xff\xff\xff{}", 4, math.MaxUint32, false, ErrTooLarge},
		{"GET / HTTP/1.1\r\n", 4, 0x47455420, false, ErrTooLarge}, // case FR-18
	} {
		skip, n, whole, err := NextJSON([]byte(c.in), max)
		assert.Equal(t, []any{c.skip, c.n, c.whole, c.err}, []any{skip, n, whole, err}, "%q", c.in)
	}
	assert.Equal(t, "x\x00\x01\x00\x00", string(AppendJSONHead([]byte("x"), 1<<16)))
	assert.Equal(t, "\xff\xff\xff\xff", string(AppendJSONHead(nil, math.MaxUint32)))
	assert.Panics(t, func() { AppendJSONHead(nil, math.MaxUint32+1) })
}

// FuzzNextJSON: a stream cut anywhere gives the same messages as one that comes as
// a whole, and nothing is promised that is not there.
func FuzzNextJSON(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02{}\x00\x00\x00\x00\x00\x00\x00\x01x\x00\x00"), 100)
	f.Add([]byte("\x00\x00\x00\x65"), 100)
	f.Fuzz(func(t *testing.T, stream []byte, max int) {
		for rest := stream; ; {
			skip, n, whole, err := NextJSON(rest, max)
			if err != nil {
				require.ErrorIs(t, err, ErrTooLarge)
				require.Greater(t, n, max)
				return
			}
			if !whole {
				require.Zero(t, skip+n)
				return
			}
			require.Equal(t, JSONHeadSize, skip)
			require.Equal(t, uint32(n), binary.BigEndian.Uint32(rest))
			require.LessOrEqual(t, n, max)
			msg := rest[skip : skip+n]
			for cut := range skip + n { // not before it is whole
				_, _, whole, err := NextJSON(rest[:cut], max)
				require.False(t, whole)
				require.NoError(t, err)
			}
			require.Equal(t, string(rest[:skip+n]), string(append(AppendJSONHead(nil, n), msg...)))
			rest = rest[skip+n:]
		}
	})
}

func TestIsName(t *testing.T) {
	for _, name := range []string{"a", " ", "alice ", "é", "e\u0301", "\U0001F600", "a/+#$", strings.Repeat("x", 128)} {
		assert.True(t, IsName(name, MaxName), "%q", name)
	}
	for _, name := range []string{"", "a\x00", "\n", "a\x1f", "\x7f", "\u0085", strings.Repeat("x", 129), strings.Repeat("é", 65)} {
		assert.False(t, IsName(name, MaxName), "%q", name)
	}
}
