package mailbox

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
)

// An events is the client's end of a stream.
type events struct {
	*raw
	t     testing.TB
	lines *bufio.Scanner
}

func (r *rig) stream(id *crypto.Identity, params string) *events {
	c := r.begin("GET", "/relay/stream"+query(id, time.Now())+params)
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, nil)
	require.NoError(r.t, err)
	require.Equal(r.t, http.StatusOK, resp.StatusCode)
	require.Equal(r.t, "text/event-stream", resp.Header.Get("Content-Type"))
	require.Equal(r.t, "no-store", resp.Header.Get("Cache-Control"))
	return &events{c, r.t, bufio.NewScanner(resp.Body)}
}

// next reads up to the next event.
func (e *events) next() item {
	e.t.Helper()
	for e.lines.Scan() {
		data, ok := strings.CutPrefix(e.lines.Text(), "data: ")
		if !ok {
			require.Contains(e.t, []string{"", ":"}, e.lines.Text())
			continue
		}
		var it item
		require.NoError(e.t, json.Unmarshal([]byte(data), &it))
		require.True(e.t, e.lines.Scan())
		require.Empty(e.t, e.lines.Text(), "an event ends with an empty line")
		return it
	}
	require.NoError(e.t, e.lines.Err())
	require.Fail(e.t, "the stream has ended")
	return item{}
}

// TestStream: what is there and what comes, at once, one blob an event; leased, and
// gone once acknowledged.
func TestStream(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.mustStore(r.alice, r.bob.Public(), "a", "b\n\n\"\u2028")
		e := r.stream(r.bob, "")
		defer e.Close()
		a, b := e.next(), e.next()
		assert.Equal(t, []string{"a", "b\n\n\"\u2028"}, blobs([]item{a, b}))
		assert.Equal(t, r.alice.String(), a.Sender)
		assert.Equal(t, time.Now().UnixMilli(), a.Timestamp)
		go func() {
			time.Sleep(45 * time.Second)
			r.mustStore(r.alice, r.bob.Public(), "c")
		}()
		began := time.Now()
		c := e.next()
		assert.Equal(t, "c", c.Blob)
		assert.Equal(t, 45*time.Second, time.Since(began))
		require.Equal(t, http.StatusOK, r.ack(r.bob, a.ID, c.ID).status)
		time.Sleep(time.Millisecond)
		assert.Empty(t, r.fetch(r.bob, ""))

		// b was not acknowledged within the minute that is the default.
		again := e.next()
		assert.Equal(t, b, again)
		assert.LessOrEqual(t, time.Since(began), time.Minute+lookAgain)
	})
}

// TestStreamEnds: what was not acknowledged is there again at once, except where the
// lease is somebody else's by then; the timestamp is used up.
func TestStreamEnds(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.mustStore(r.alice, r.bob.Public(), "a", "b")
		q := query(r.bob, time.Now())
		e := r.stream(r.bob, "&lease=600")
		a := e.next()
		e.next()
		require.Equal(t, http.StatusOK, r.ack(r.bob, a.ID).status)
		assert.Empty(t, r.pending(r.bob))
		_ = e.Close()
		synctest.Wait()
		assert.Equal(t, []string{"b"}, r.pending(r.bob))
		r.do("GET", "/relay/stream"+q, "").requireRefused(t, http.StatusUnauthorized)
		requireFree(t, &r.mailbox.waiting)

		time.Sleep(time.Millisecond)
		e = r.stream(r.bob, "&lease=1")
		e.next()
		time.Sleep(time.Second)
		require.Len(t, r.fetch(r.bob, "&lease=60"), 1)
		_ = e.Close()
		synctest.Wait()
		assert.Empty(t, r.pending(r.bob), "leased by the fetch")
	})
}

// TestStreamIsKeptAlive: there is something every ten seconds, beyond the timeouts of
// the http.Server; and a reader that takes nothing is cut.
func TestStreamIsKeptAlive(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.stream(r.bob, "")
		began := time.Now()
		for range 100 {
			require.True(t, e.lines.Scan())
		}
		assert.InDelta(t, (49 * lookAgain).Seconds(), time.Since(began).Seconds(), 11)
		time.Sleep(time.Minute)
		requireFree(t, &r.mailbox.waiting)
		_ = e.Close()
	})
}
