package frame

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestResponses: spec native.md, "Frame types".
func TestResponses(t *testing.T) {
	for want, got := range map[string][]byte{
		`{"t":"subscribed","topic":"a/#","req":7,"ok":true}`:               AppendResponse(nil, 7, AppendSubscribed(nil, "a/#")),
		`{"t":"joined_room","room":"r}","members":2,"req":1,"ok":true}`:    AppendResponse(nil, 1, AppendJoinedRoom(nil, "r}", 2)),
		`{"t":"erase","req":9223372036854775807,"ok":true}`:                AppendResponse(nil, math.MaxInt64, AppendDone(nil, "erase")),
		`{"t":"get_card","card":"AQ==","req":2,"ok":true}`:                 AppendResponse(nil, 2, AppendCard(nil, "AQ==")),
		`{"req":3,"ok":false,"code":"rate-limited","msg":"slow \"down\""}`: AppendRefusal(nil, 3, CodeRateLimited, `slow "down"`),
		`{"t":"gap","topic":"a/+"}`:                                        AppendGap(nil, "a/+"),
	} {
		assert.Equal(t, want, string(got))
		var o Object
		require.NoError(t, o.Parse(got))
	}
	head := []byte("head")
	assert.Equal(t, `head{"t":"gap","topic":"a"}`, string(AppendGap(head[:4:4], "a")))
	answer := AppendGap(nil, "a")
	assert.Equal(t, `head{"t":"gap","topic":"a","req":1,"ok":true}`, string(AppendResponse(head[:4:4], 1, answer)))
	assert.Equal(t, `{"t":"gap","topic":"a"}`, string(answer))
	c := Capabilities{Dialect: "brep"}
	assert.True(t, strings.HasSuffix(string(AppendResponse(nil, 1, c.Append(nil))), `,"load_tier":"","req":1,"ok":true}`))
}

func TestDecodeResponse(t *testing.T) {
	r, err := DecodeResponse(AppendResponse(nil, 7, AppendJoinedRoom(nil, "a\"b", 3)))
	require.NoError(t, err)
	assert.Equal(t, int64(7), r.Req)
	assert.Equal(t, "joined_room", r.Type)
	assert.False(t, r.Refused)
	assert.Equal(t, `a"b`, r.Text("room"))
	assert.Equal(t, 3, r.Int("members"))
	assert.Empty(t, r.Text("members"))
	assert.Zero(t, r.Int("room"))
	assert.Empty(t, r.Text("x"))
	assert.Zero(t, r.Int("x"))

	r, err = DecodeResponse(AppendRefusal(nil, math.MaxInt64, CodeInvalidFilter, "no"))
	require.NoError(t, err)
	assert.Equal(t, int64(math.MaxInt64), r.Req)
	assert.True(t, r.Refused)
	assert.Equal(t, CodeInvalidFilter, r.Code)
	assert.Equal(t, "no", r.Reason)

	r, err = DecodeResponse([]byte(`{"req":1,"ok":false,"code":"of tomorrow","t":"x"}`))
	require.NoError(t, err)
	assert.True(t, r.Refused)
	assert.Zero(t, r.Code)
	assert.Empty(t, r.Type)

	r, err = DecodeResponse(AppendGap(nil, "a/+"))
	require.NoError(t, err)
	assert.Zero(t, r.Req)
	assert.Equal(t, "gap", r.Type)
	assert.Equal(t, "a/+", r.Text("topic"))

	for _, bad := range []string{
		``, `[]`, `{}`, `{"t":1}`, `{"t":"a"`, `{"t":"a","req":1}`, `{"t":"a","req":0,"ok":true}`,
		`{"t":"a","req":-1,"ok":true}`, `{"t":"a","req":1.5,"ok":true}`, `{"t":"a","req":"1","ok":true}`,
		`{"t":"a","req":1,"ok":"true"}`, `{"t":"a","req":9223372036854775808,"ok":true}`, `{"t":"a","t":"b"}`,
	} {
		_, err := DecodeResponse([]byte(bad))
		require.ErrorIs(t, err, ErrMalformed, bad)
	}
}

func TestAppendRequest(t *testing.T) {
	assert.Equal(t, `head{"t":"erase","req":12}`, string(AppendRequest([]byte("head"), 12, []byte(`{"t":"erase"}`))))
}

func TestCodesHaveNames(t *testing.T) {
	for c := CodeMalformed; c <= CodeInternal; c++ {
		assert.Equal(t, c, CodeOf(c.String()))
	}
	assert.Zero(t, CodeOf("code-0"))
	assert.Zero(t, CodeOf(""))
}

// FuzzDecodeResponse: what decodes as an answer is one of a request, and says what
// became of it.
func FuzzDecodeResponse(f *testing.F) {
	f.Add(AppendResponse(nil, 1, AppendSubscribed(nil, "a")))
	f.Add(AppendRefusal(nil, 2, CodeQuota, "no"))
	f.Add(AppendGap(nil, "a"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeResponse(b)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		var all map[string]any
		require.NoError(t, json.Unmarshal(b, &all))
		_, asked := all["req"]
		require.Equal(t, asked, r.Req > 0)
		if r.Refused {
			require.Equal(t, false, all["ok"])
		} else {
			kind, _ := all["t"].(string)
			require.Equal(t, kind, r.Type)
		}
		if r.Req == 0 {
			require.NotEmpty(t, r.Type)
			require.False(t, r.Refused)
		}
	})
}
