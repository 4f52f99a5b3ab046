package frame

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/internal/vectors"
)

// A blindVector is one case of testdata/blind_frames.json.
type blindVector struct {
	Name       string
	Valid      bool
	Frame      string
	RoutingKey string `json:"routing_key"`
	AuditKey   string `json:"audit_key"`
	Kind       string
	Sender     string
}

func TestBlindVectors(t *testing.T) {
	for _, v := range vectors.Cases[blindVector](t, "blind_frames.json") {
		t.Run(v.Name, func(t *testing.T) {
			b := vectors.Unhex(t, v.Frame)
			header, err := PeekHeader(b)
			var h BlindHeader
			if err == nil {
				h, err = ParseHeader(header)
			}
			if !v.Valid {
				require.ErrorIs(t, err, ErrMalformed)
				_, err = ParseBlind(b)
				require.ErrorIs(t, err, ErrMalformed)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, v.RoutingKey, h.Key())
			assert.Equal(t, v.AuditKey, h.EntityID)
			assert.Equal(t, v.Kind, string(h.Kind))
			assert.Equal(t, v.Sender, h.Sender)
			f, err := ParseBlind(b)
			if strings.Contains(v.Name, "not the relay's to check") {
				require.ErrorIs(t, err, ErrMalformed, "it is the reader's")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, h, f.Header)
			assert.Equal(t, b, AppendBlind(nil, f.Encoded, f.Signature, f.Ciphertext))
			if h.Seq == 1 && !strings.Contains(v.Name, "extra") {
				assert.Equal(t, string(header), string(h.Append(nil)), "as a Brainstorm client encodes it")
			}
		})
	}
}

// TestParseHeader: what the vectors leave open.
func TestParseHeader(t *testing.T) {
	whole := `{"v":1,"kind":"update","entityId":"e","sender":"s","seq":1,"nonce":"n","ts":2}`
	ok := BlindHeader{Kind: BlindUpdate, EntityID: "e", Sender: "s", Seq: 1, Nonce: "n", TS: 2}
	for name, c := range map[string]struct {
		old, new string
		set      func(*BlindHeader) // nil: malformed
	}{
		"as it is":            {"", "", func(*BlindHeader) {}},
		"space":               {`{"v":1,`, " { \"v\"\n:\t1 ,", func(*BlindHeader) {}},
		"v = 1.0":             {`"v":1`, `"v":1.0`, func(*BlindHeader) {}},
		"v = 10e-1":           {`"v":1`, `"v":10e-1`, func(*BlindHeader) {}},
		"v = 1.5":             {`"v":1`, `"v":1.5`, nil},
		"v = true":            {`"v":1`, `"v":true`, nil},
		"an escaped name":     {`"entityId"`, `"entit\u0079Id"`, func(*BlindHeader) {}},
		"an escaped key":      {`"entityId":"e"`, `"entityId":"\u0065\n"`, func(h *BlindHeader) { h.EntityID = "e\n" }},
		"an escaped kind":     {`"update"`, `"snap\u0073hot"`, func(h *BlindHeader) { h.Kind = BlindSnapshot }},
		"an escaped route":    {`"ts":2`, `"ts":2,"route":"\u0072"`, func(h *BlindHeader) { h.Route = "r" }},
		"route = null":        {`"ts":2`, `"ts":2,"route":null`, nil},
		"repeated":            {`"ts":2`, `"ts":2,"entityId":"e"`, nil},
		"repeated, escaped":   {`"ts":2`, `"ts":2,"\u0065ntityId":"x"`, nil},
		"repeated, unknown":   {`"ts":2`, `"ts":2,"x":1,"x":1`, nil},
		"another case":        {`"entityId"`, `"EntityId"`, nil},
		"kind in upper case":  {`"update"`, `"UPDATE"`, nil},
		"kind with a space":   {`"update"`, `"update "`, nil},
		"seq too large":       {`"seq":1`, `"seq":1e400`, nil},
		"ts too large":        {`"ts":2`, `"ts":-1e309`, nil},
		"seq next to nothing": {`"seq":1`, `"seq":1e-400`, func(h *BlindHeader) { h.Seq = 0 }},
		"seq no JSON number":  {`"seq":1`, `"seq":01`, nil},
		"seq = NaN":           {`"seq":1`, `"seq":NaN`, nil},
		"behind it":           {`"ts":2}`, `"ts":2}x`, nil},
		"two":                 {`"ts":2}`, `"ts":2}{}`, nil},
		"no UTF-8":            {`"e"`, "\"\xff\"", nil},
		"half a surrogate":    {`"e"`, `"\ud800"`, nil},
		"a mark":              {`{"v"`, "\ufeff{\"v\"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := ParseHeader([]byte(strings.Replace(whole, c.old, c.new, 1)))
			if c.set == nil {
				require.ErrorIs(t, err, ErrMalformed)
				assert.Zero(t, h)
				return
			}
			require.NoError(t, err)
			want := ok
			c.set(&want)
			assert.Equal(t, want, h)
		})
	}
}

func TestParseBlindRest(t *testing.T) {
	h := BlindHeader{Kind: BlindAwareness, EntityID: "é\x01\"\\", Sender: "s", Seq: -1.5, Nonce: "n", TS: 1e300, Route: "r"}
	b := AppendBlind(nil, h.Append(nil), seq(64), seq(40))
	f, err := ParseBlind(b)
	require.NoError(t, err)
	assert.Equal(t, BlindFrame{h, h.Append(nil), seq(64), seq(40)}, f)
	for n := range b {
		_, err := ParseBlind(b[:n])
		require.ErrorIs(t, err, ErrMalformed, "%d bytes", n)
	}
	_, err = ParseBlind(append(b, 0))
	require.ErrorIs(t, err, ErrMalformed)
}

// TestBlindRouteAllocates: nothing on the way of a frame through a relay.
func TestBlindRouteAllocates(t *testing.T) {
	h := BlindHeader{Kind: BlindUpdate, EntityID: "\x01entity", Sender: "s", Seq: 1, Nonce: "n", TS: 1.7e12, Route: "route"}
	b := AppendBlind(nil, h.Append(nil), nil, nil)
	var r BlindRoute
	route := func() {
		header, err := PeekHeader(b)
		if err == nil {
			err = r.Parse(header)
		}
		if err != nil || string(r.Key) != "route" || string(r.EntityID) != "\x01entity" || r.Kind != BlindUpdate {
			t.Error(err, r)
		}
	}
	route()
	assert.Zero(t, testing.AllocsPerRun(100, route))
	r.Reset()
	assert.Equal(t, [2][]byte{}, [2][]byte{r.Key, r.EntityID})
}

// FuzzBlind: what parses has a header that parses to the same when it is encoded
// again, is what encoding/json reads, and is the frame that its parts make.
func FuzzBlind(f *testing.F) {
	for _, v := range vectors.Cases[blindVector](f, "blind_frames.json") {
		f.Add(vectors.Unhex(f, v.Frame))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		header, err := PeekHeader(b)
		if err != nil {
			return
		}
		var r BlindRoute
		h, err := ParseHeader(header)
		if routeErr := r.Parse(header); err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			require.Error(t, routeErr)
			return
		}
		require.Equal(t, [3]string{h.Key(), h.EntityID, string(h.Kind)}, [3]string{string(r.Key), string(r.EntityID), string(r.Kind)})
		require.False(t, math.IsInf(h.Seq, 0) || math.IsInf(h.TS, 0))
		again, err := ParseHeader(h.Append(nil))
		require.NoError(t, err)
		require.Equal(t, h, again)
		var read map[string]any
		require.NoError(t, json.Unmarshal(header, &read))
		require.Equal(t, h.EntityID, read["entityId"])
		require.Equal(t, h.Seq, read["seq"])
		require.Equal(t, float64(1), read["v"])
		if whole, err := ParseBlind(b); err == nil {
			require.Equal(t, b, AppendBlind(nil, whole.Encoded, whole.Signature, whole.Ciphertext))
		}
		require.Equal(t, before, b)
	})
}

func BenchmarkBlindRoute(b *testing.B) {
	h := BlindHeader{Kind: BlindUpdate, EntityID: "ent_1", Sender: "sender-1", Seq: 1, Nonce: "AAAAAAAAAAAAAAAA", TS: 1.7e12}
	frame := AppendBlind(nil, h.Append(nil), seq(64), seq(255))
	var r BlindRoute
	b.ReportAllocs()
	for b.Loop() {
		header, _ := PeekHeader(frame)
		_ = r.Parse(header)
	}
}
