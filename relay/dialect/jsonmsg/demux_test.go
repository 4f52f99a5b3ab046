package jsonmsg

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/relay"
)

// TestDemux: what a datagram is. What is broken is nobody's (case UD-05).
func TestDemux(t *testing.T) {
	for _, c := range []struct {
		datagram    string
		open        bool
		name, token string
	}{
		{`{"t":"register","addr":"a"}`, true, "", ""},
		{`{"t":"register","from_addr":"a","token":"b"}`, true, "", ""},
		{`{"\u0074":"re\u0067ister"}`, true, "", ""},
		{`{"t":"send","from_addr":"alice","token":"00ff"}`, false, "alice", "00ff"},
		{`{"token":"00ff","t":"capabilities","from_addr":"\u0061l\u00edce"}`, false, "alíce", "00ff"},
		{`{"from_addr":"a","token":"b"}`, false, "a", "b"},
		{`{"t":"capabilities"}`, false, "", ""},
		{`{"t":"send","from_addr":5,"token":["b"]}`, false, "", ""},
		{`{"t":"send","from_addr":"a"}`, false, "a", ""},
		{`{"t":"register","addr":"a"`, false, "", ""},
		{`{"t":"register"}{}`, false, "", ""},
		{`{"t":"register","t":"register"}`, false, "", ""},
		{``, false, "", ""},
		{`register`, false, "", ""},
	} {
		open, name, token := Demux([]byte(c.datagram))
		assert.Equal(t, c.open, open, c.datagram)
		assert.Equal(t, c.name, string(name), c.datagram)
		assert.Equal(t, c.token, string(token), c.datagram)
	}
	// What it returns is not overwritten by the next call.
	_, name, _ := Demux([]byte(`{"from_addr":"\u0061\u0061\u0061","token":""}`))
	Demux([]byte(`{"from_addr":"\u0062\u0062\u0062","token":""}`))
	assert.Equal(t, "aaa", string(name))
}

func TestAnswer(t *testing.T) {
	tier := relay.Degraded
	answer := Answer(func() relay.Tier { return tier })
	assert.Equal(t, `{"t":"capabilities","load_tier":"degraded"}`, string(answer([]byte(`{"t":"capabilities","x":1}`))))
	tier = relay.Overloaded
	for _, d := range []string{`{"t":"capabilities"}`, `{"t":"capabilities","from_addr":"a"}`} {
		got := answer([]byte(d))
		assert.Equal(t, `{"t":"capabilities","load_tier":"overloaded"}`, string(got))
		assert.LessOrEqual(t, len(got), 3*len(d))
	}
	for _, d := range []string{`{"t":"send","to":"x"}`, `{"t":"Capabilities"}`, `{"t":"capabilities"`, `{}`, ``, `x`} {
		assert.Nil(t, answer([]byte(d)), d)
	}
}

// FuzzDemux: any datagram at all, read as Receive would read it.
func FuzzDemux(f *testing.F) {
	f.Add([]byte(`{"t":"register","addr":"a"}`))
	f.Add([]byte(`{"t":"send","from_addr":"al\u0069ce","token":"00ff"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		open, name, token := Demux(b)
		require.Equal(t, before, b)
		require.False(t, open && (name != nil || token != nil))
		answer := Answer(func() relay.Tier { return relay.Overloaded })(b)
		require.LessOrEqual(t, len(answer), 3*len(b))
		require.False(t, open && answer != nil)
	})
}
