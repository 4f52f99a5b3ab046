package client

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
)

// asked reads the next REQUEST. ok is false at the end of the connection.
func (c *fakeConn) asked() (r *frame.Response, id [16]byte, ok bool) {
	for {
		f, err := c.read()
		switch {
		case err != nil:
			return nil, id, false
		case f.Type == frame.TypeRequest:
			o := new(frame.Object)
			require.NoError(c.t, o.Parse(f.Payload))
			r, err := frame.DecodeResponse(append(f.Payload[:len(f.Payload)-1:len(f.Payload)-1], `,"ok":true}`...))
			require.NoError(c.t, err)
			return r, f.ID, true
		}
	}
}

// respond sends a RESPONSE.
func (c *fakeConn) respond(payload []byte) {
	c.write(&frame.Brep{Type: frame.TypeResponse, Payload: payload})
}

func TestRequest(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		c := r.client(identity(t, 1), nil)
		answer, err := c.request(t.Context(), []byte(`{"t":"subscribe","topic":"a/#"}`))
		require.NoError(t, err)
		require.Equal(t, "subscribed", answer.Type)
		require.Equal(t, "a/#", answer.Text("topic"))

		_, err = c.request(t.Context(), []byte(`{"t":"subscribe","topic":"a#"}`))
		var refused *RefusedError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, frame.CodeInvalidFilter, refused.Code)
		_, err = c.request(t.Context(), []byte(`{"t":"dance"}`))
		require.ErrorAs(t, err, &refused)
		require.Equal(t, frame.CodeUnknownVerb, refused.Code)

		_, err = c.request(t.Context(), []byte(`{"t":"`+strings.Repeat("x", frame.MaxRequest-20)+`"}`))
		require.ErrorIs(t, err, ErrTooLarge)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = c.request(ended, []byte(`{"t":"erase"}`))
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, c.Close())
		_, err = c.request(t.Context(), []byte(`{"t":"erase"}`))
		require.ErrorIs(t, err, ErrClosed)
	})
}

// TestRequestsAtOnce: each caller gets the answer to his own question, whatever
// the order of the answers.
func TestRequestsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRelay{t: t, seed: relaySeed, script: func(c *fakeConn) {
			for range 5 {
				var all []*frame.Response
				for range maxRequests {
					q, _, _ := c.asked()
					all = append(all, q)
				}
				_ = c.SetReadDeadline(time.Now().Add(time.Second))
				_, err := c.read()
				require.ErrorIs(c.t, err, os.ErrDeadlineExceeded, "more than are allowed")
				_ = c.SetReadDeadline(time.Time{})
				for _, q := range slices.Backward(all) {
					c.respond(frame.AppendResponse(nil, q.Req, frame.AppendLeftRoom(nil, q.Text("room"))))
				}
			}
			c.hold()
		}}
		c, err := r.client(nil)
		require.NoError(t, err)
		var asking sync.WaitGroup
		for i := range 5 * maxRequests {
			asking.Go(func() {
				room := fmt.Sprint(i)
				a, err := c.request(t.Context(), []byte(`{"t":"leave_room","room":"`+room+`"}`))
				assert.NoError(t, err)
				assert.Equal(t, room, a.Text("room"))
			})
		}
		asking.Wait()
		require.NoError(t, c.Close())
	})
}

// TestRequestLasts: what was asked in a connection that ended without an answer,
// or while there was none, is asked in the next, in order.
func TestRequestLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []string
		r := &fakeRelay{t: t, seed: relaySeed, script: func(c *fakeConn) {
			for range c.n + 1 { // nothing is answered in the first, and one more in each
				q, _, ok := c.asked()
				if !ok {
					return
				}
				heard = append(heard, fmt.Sprint(c.n, q.Text("key")))
				if c.n > 0 {
					c.respond(frame.AppendResponse(nil, q.Req, frame.AppendDone(nil, "block")))
				}
			}
			if c.n > 1 {
				c.hold()
			}
		}}
		c, err := r.client(func(c *Config) { c.StartOffline = true })
		require.NoError(t, err)
		var asking sync.WaitGroup
		for _, key := range []string{"a", "b"} {
			asking.Go(func() {
				a, err := c.request(t.Context(), []byte(`{"t":"block","key":"`+key+`"}`))
				assert.NoError(t, err)
				assert.Equal(t, "block", a.Type)
			})
			for len(c.ask.openNumbers()) == 0 { // the first one first
				time.Sleep(time.Nanosecond)
			}
		}
		asking.Wait()
		require.Equal(t, []string{"0a", "1a", "1b"}, heard[:3])
		require.NoError(t, c.Close())
	})
}

// openNumbers returns the numbers of the calls without an answer.
func (q *calls) openNumbers() (numbers []int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for n := range q.open {
		numbers = append(numbers, n)
	}
	return numbers
}

// TestRequestGivenUp: whose context ends gets its error, and is not asked again;
// an ERROR about the frame of a request ends it; nonsense ends nothing.
func TestRequestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRelay{t: t, seed: relaySeed, script: func(c *fakeConn) {
			if c.n == 0 {
				_, _, _ = c.asked()
				return
			}
			q, id, ok := c.asked()
			if !ok {
				return
			}
			require.Equal(c.t, "unblock", q.Type)
			for _, nonsense := range []string{``, `{}`, `{"req":2}`, `{"req":77,"ok":true}`, `{"t":"moved"}`, `{"req":0,"ok":false}`} {
				c.respond([]byte(nonsense))
			}
			time.Sleep(time.Second)
			for _, e := range []frame.Error{{Code: frame.CodeQuota, ID: [16]byte{1}}, {Code: frame.CodeOverloaded, Sentence: "no", ID: id}} {
				c.write(&frame.Brep{Type: frame.TypeError, Flags: e.Flags(), Payload: e.Append(nil)})
			}
			c.hold()
		}}
		c, err := r.client(func(c *Config) { c.BackoffMin, c.BackoffMax = time.Minute, time.Minute })
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		_, err = c.request(ctx, []byte(`{"t":"block"}`))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Empty(t, c.ask.openNumbers())
		_, err = c.request(t.Context(), []byte(`{"t":"unblock"}`))
		var refused *RefusedError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, &RefusedError{frame.CodeOverloaded, "no"}, refused)
		require.NoError(t, c.Close())
	})
}

// TestRequestClosed: the end of the Client ends what waits for an answer, or for
// room to ask.
func TestRequestClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRelay{t: t, seed: relaySeed, script: (*fakeConn).hold}
		c, err := r.client(nil)
		require.NoError(t, err)
		var asking sync.WaitGroup
		for range 2 * maxRequests {
			asking.Go(func() {
				_, err := c.request(t.Context(), []byte(`{"t":"erase"}`))
				assert.ErrorIs(t, err, ErrClosed)
			})
		}
		synctest.Wait()
		require.NoError(t, c.Close())
		asking.Wait()
	})
}

// TestRequestLegacy: a relay that speaks v1 has no requests.
func TestRequestLegacy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRelay{t: t, seed: relaySeed, legacy: true, script: (*fakeConn).hold}
		c, err := r.client(nil)
		require.NoError(t, err)
		_, err = c.request(t.Context(), []byte(`{"t":"erase"}`))
		require.ErrorIs(t, err, ErrLegacySession)
		require.NoError(t, c.Close())
	})
}
