package mailbox

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/internal/race"
	"github.com/sotto-relay/sotto/relay"
)

// A raw connection with a request that has been sent.
type raw struct {
	net.Conn
	t testing.TB
}

func (r *rig) begin(method, target string) *raw {
	c, err := r.listener.dial()
	require.NoError(r.t, err)
	_, err = fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: relay\r\n\r\n", method, target)
	require.NoError(r.t, err)
	return &raw{c, r.t}
}

// read reads exactly n bytes.
func (c *raw) read(n int) {
	_, err := io.ReadFull(c, make([]byte, n))
	require.NoError(c.t, err)
}

// answerLen returns how many bytes the answer to a request has, its head included.
func (r *rig) answerLen(target string) int {
	c := r.begin("GET", target)
	defer c.Close()
	var all bytes.Buffer
	resp, err := http.ReadResponse(bufio.NewReader(io.TeeReader(c, &all)), nil)
	require.NoError(r.t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(r.t, err)
	return all.Len()
}

// TestCutAnswer: a connection that is cut after n bytes of the answer, for every n,
// loses nothing, with a lease and without, as far as the relay can see the cut; and
// what was whole is given once.
func TestCutAnswer(t *testing.T) {
	for _, params := range []string{"", "&lease=60"} {
		bubble(t, func(r *rig) { r.server.Limits = relay.MaxLimits(); r.PerKey = 1 << 20 }, func(t *testing.T, r *rig) {
			want := []string{"é\n", "last"}
			r.mustStore(r.alice, r.bob.Public(), want...)
			whole := r.answerLen("/relay/fetch" + query(r.bob, time.Now()) + params)
			time.Sleep(11 * time.Minute) // blobs may be stored again
			r.mustStore(r.alice, r.bob.Public(), want...)
			for n := range whole {
				c := r.begin("GET", "/relay/fetch"+query(r.bob, time.Now())+params)
				c.read(n)
				_ = c.Close()
				synctest.Wait()
				time.Sleep(time.Millisecond)
				require.Equal(t, want, r.pending(r.bob), "cut after %d of %d bytes", n, whole)
			}
			c := r.begin("GET", "/relay/fetch"+query(r.bob, time.Now())+params)
			c.read(whole)
			synctest.Wait()
			assert.Empty(t, r.pending(r.bob))
			_ = c.Close()
			time.Sleep(time.Minute)
			if params == "" {
				assert.Empty(t, r.pending(r.bob))
			} else {
				assert.Equal(t, want, r.pending(r.bob), "not acknowledged")
			}
		})
	}
}

// TestCutLongAnswer: likewise for one that is written in parts, at some n.
func TestCutLongAnswer(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		var want []string
		for i := range 4 {
			want = append(want, strings.Repeat(fmt.Sprint(i), 100_000))
		}
		r.mustStore(r.alice, r.bob.Public(), want...)
		for range 40 {
			n := rand.IntN(400_000)
			c := r.begin("GET", "/relay/fetch"+query(r.bob, time.Now())+"&lease=60")
			c.read(n)
			synctest.Wait()
			require.Less(t, len(r.pending(r.bob)), 4, "leased")
			_ = c.Close()
			synctest.Wait()
			time.Sleep(time.Millisecond)
			require.Equal(t, want, r.pending(r.bob), "cut after %d bytes", n)
		}
		items := r.fetch(r.bob, "")
		assert.Equal(t, want, blobs(items))
		assert.Empty(t, r.pending(r.bob))
	})
}

// TestSlowReader: one that does not take 32 KiB in 30 s is cut, and loses nothing; so is
// one whose answer lasts longer than the lease of what is in it.
func TestSlowReader(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.mustStore(r.alice, r.bob.Public(), strings.Repeat("x", 1_000_000))
		c := r.begin("GET", "/relay/fetch"+query(r.bob, time.Now()))
		for range 20 {
			time.Sleep(20 * time.Second)
			c.read(40_000)
		}
		assert.Empty(t, r.pending(r.bob))
		time.Sleep(29 * time.Second)
		assert.Empty(t, r.pending(r.bob))
		time.Sleep(2 * time.Second)
		assert.Len(t, r.pending(r.bob), 1)
		_ = c.Close()

		c = r.begin("GET", "/relay/fetch"+query(r.bob, time.Now())+"&lease=60")
		for range 4 {
			c.read(100_000)
			time.Sleep(14 * time.Second)
		}
		assert.Empty(t, r.pending(r.bob))
		time.Sleep(4 * time.Second)
		assert.Len(t, r.pending(r.bob), 1)
		n, err := io.Copy(io.Discard, c)
		assert.NoError(t, err, "closed")
		assert.Less(t, n, int64(100_000))
	})
}

// TestFetchesShare: a fetch while the answer of another is being written has what that
// has not come to, and so each blob is in one answer.
func TestFetchesShare(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.mustStore(r.alice, r.bob.Public(), strings.Repeat("x", 100_000), "a", "b")
		c := r.begin("GET", "/relay/fetch"+query(r.bob, time.Now()))
		defer c.Close()
		c.read(1000)
		time.Sleep(time.Millisecond)
		assert.Equal(t, []string{"a", "b"}, blobs(r.fetch(r.bob, "")))
		rest, err := io.ReadAll(io.LimitReader(c, 99_000))
		require.NoError(t, err)
		more := make([]byte, 2000)
		n, err := io.ReadAtLeast(c, more, len(`"count":1}`))
		require.NoError(t, err)
		assert.Contains(t, string(rest)+string(more[:n]), `"count":1}`)
	})
}

// TestStoreWhileFetching: what is stored during a fetch is not lost with what was
// fetched, 1,000 times, with readers at the same time and answers that are cut: each
// blob comes to one of them, once, and the order of each sender holds.
func TestStoreWhileFetching(t *testing.T) {
	bubble(t, unmetered, func(t *testing.T, r *rig) {
		senders, each := 4, 250
		if race.Enabled {
			each = 50
		}
		r.storeWhileFetching(senders, each)
		synctest.Wait() // for the last removal
		st := r.server.Stats()
		assert.EqualValues(t, senders*each, st.Delivered)
		assert.Zero(t, st.Held)
	})
}

// unmetered sets a rig up for more than limits allow.
func unmetered(r *rig) {
	r.server.Limits = relay.MaxLimits()
	r.server.Limits.Dialects = map[string]relay.DialectLimits{"mailbox": {InboxMessages: 1 << 20, SenderTotal: 1 << 20}}
	r.PerKey = 1 << 20
}

// storeWhileFetching has some senders store blobs while three readers fetch, of whose
// answers some are cut.
func (r *rig) storeWhileFetching(senders, each int) {
	t := r.t
	var storing, reading sync.WaitGroup
	for s := range senders {
		id := identity(t, byte(10+s))
		storing.Go(func() {
			for i := range each {
				r.mustStore(id, r.bob.Public(), fmt.Sprintf("%d %d", s, i))
			}
		})
	}
	var mu sync.Mutex
	got := make(map[string]int)
	stamp := time.Now()
	target := func() string {
		mu.Lock()
		defer mu.Unlock()
		stamp = stamp.Add(time.Millisecond)
		return "/relay/fetch" + query(r.bob, stamp)
	}
	take := func(items []item) {
		mu.Lock()
		defer mu.Unlock()
		next := make(map[string]int)
		for _, it := range items {
			var s string
			var i int
			_, err := fmt.Sscan(it.Blob, &s, &i)
			assert.NoError(t, err)
			assert.LessOrEqual(t, next[s], i, "the order of a sender")
			next[s] = i + 1
			got[it.Blob]++
		}
	}
	stop := make(chan struct{})
	for range 3 {
		reading.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if n%3 == 0 {
					c := r.begin("GET", target())
					c.read(rand.IntN(200))
					_ = c.Close()
					continue
				}
				items, _ := r.do("GET", target(), "").list(t)
				take(items)
			}
		})
	}
	storing.Wait()
	close(stop)
	reading.Wait()
	assert.Eventually(t, func() bool { // the last of those that were cut may not be given back yet
		items, _ := r.do("GET", target(), "").list(t)
		take(items)
		return len(got) == senders*each
	}, time.Minute, time.Millisecond)
	require.Len(t, got, senders*each)
	for b, n := range got {
		require.Equal(t, 1, n, b)
	}
}

// TestAnswerMemory: an answer of 20 MiB takes less than 4, in the test and the
// client as well.
func TestAnswerMemory(t *testing.T) {
	r := newRig(t, nil)
	blob := []byte(strings.Repeat("x\x01", 1<<19))
	to := address(r.bob.Public())
	for i := range 6 {
		o, err := r.server.Deliver(context.Background(), Dialect{}, &relay.Message{
			To: to, From: address(identity(t, byte(i+10)).Public()), ID: relay.ID{byte(i + 1)}, Data: blob,
		})
		require.NoError(t, err)
		require.Equal(t, relay.Stored, o.Status)
	}
	req, err := http.NewRequest("GET", "http://relay/relay/fetch"+query(r.bob, time.Now()), nil)
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	resp, err := r.client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	runtime.ReadMemStats(&after)
	assert.Greater(t, n, int64(20<<20))
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20))
	assert.Empty(t, r.pending(r.bob))
}

// TestVanished: a client that has closed before the end was written has not been given
// anything, although writing to it succeeds.
func TestVanished(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.mustStore(r.alice, r.bob.Public(), strings.Repeat("x", 100_000))
		h := Handler(r.server, Open{}, &r.Options)
		ctx, cancel := context.WithCancel(context.Background())
		req, err := http.NewRequestWithContext(ctx, "GET", "/relay/fetch"+query(r.bob, time.Now()), nil)
		require.NoError(t, err)
		w := &deafWriter{header: make(http.Header), wrote: cancel}
		assert.PanicsWithValue(t, http.ErrAbortHandler, func() { h.ServeHTTP(w, req) })
		assert.Len(t, r.pending(r.bob), 1)
	})
}

// A deafWriter takes everything, flushes too.
type deafWriter struct {
	header http.Header
	wrote  func() // called at each Write; nil: nothing is
}

func (w *deafWriter) Header() http.Header { return w.header }
func (w *deafWriter) Write(b []byte) (int, error) {
	if w.wrote != nil {
		w.wrote()
	}
	return len(b), nil
}
func (w *deafWriter) WriteHeader(int) {}
func (w *deafWriter) Flush()          {}

// An unflushable writer is one of middleware that hides what is below.
type unflushable struct{ http.ResponseWriter }

// TestUnflushable: what cannot be known to be written stays.
func TestUnflushable(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.mustStore(r.alice, r.bob.Public(), "x")
		h := Handler(r.server, Open{}, &r.Options)
		req, err := http.NewRequest("GET", "/relay/fetch"+query(r.bob, time.Now()), nil)
		require.NoError(t, err)
		assert.Panics(t, func() {
			h.ServeHTTP(unflushable{struct{ http.ResponseWriter }{&deafWriter{header: make(http.Header)}}}, req)
		})
		assert.Equal(t, []string{"x"}, r.pending(r.bob))
	})
}
