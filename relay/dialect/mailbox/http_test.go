package mailbox

import (
	"bufio"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
)

func TestMethods(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.mustStore(r.alice, r.bob.Public(), "x")
		for path, method := range map[string]string{
			"/relay/store": "POST", "/relay/fetch": "GET", "/relay/ack": "POST", "/relay/stream": "GET", "/relay/key": "GET",
		} {
			target := path + query(r.bob, time.Now())
			for _, wrong := range []string{"GET", "POST", "PUT", "DELETE", "PATCH", "get", "TRACE"} {
				if wrong == method {
					continue
				}
				rep := r.do(wrong, target, "")
				rep.requireRefused(t, http.StatusMethodNotAllowed, path, wrong)
				assert.Equal(t, method+", OPTIONS", rep.header.Get("Allow"))
			}
			rep := r.do("HEAD", target, "")
			assert.Equal(t, http.StatusMethodNotAllowed, rep.status)
			assert.Empty(t, rep.body)
			if method == "GET" {
				r.do("GET", target, "body").requireRefused(t, http.StatusMethodNotAllowed, path)
			}
			rep = r.do("OPTIONS", target, "", "Origin", "https://example.org", "Access-Control-Request-Method", method)
			assert.Equal(t, http.StatusNoContent, rep.status)
			assert.Equal(t, "*", rep.header.Get("Access-Control-Allow-Origin"))
			assert.Equal(t, method, rep.header.Get("Access-Control-Allow-Methods"))
			assert.Equal(t, "Authorization, Content-Type", rep.header.Get("Access-Control-Allow-Headers"))
		}
		for _, path := range []string{"/relay/", "/relay/x", "/relay/fetch/", "/relay/Fetch"} {
			r.do("GET", path, "").requireRefused(t, http.StatusNotFound)
		}
		assert.Equal(t, []string{"x"}, r.pending(r.bob))
		assert.Equal(t, "*", r.do("GET", "/relay/key", "").header.Get("Access-Control-Allow-Origin"))
	})
}

// TestRate: a source has its rate, before anything is verified; another is not
// affected, and a proxy's word counts if it is a trusted one.
func TestRate(t *testing.T) {
	bubble(t, func(r *rig) {
		r.server.Limits.Dialects = map[string]relay.DialectLimits{"mailbox": {MessageRate: 10, MessageBurst: 20}}
		r.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	}, func(t *testing.T, r *rig) {
		flood := func(n int, client string) (limited int) {
			for i := range n {
				bad := strings.Replace(query(r.bob, time.Now()), "signature=", "signature=00", 1)
				rep := r.do("GET", "/relay/fetch"+bad[:len(bad)-2], "", "X-Forwarded-For", fmt.Sprintf("10.0.0.%d, %s", i, client))
				if rep.status == http.StatusTooManyRequests {
					assert.Equal(t, "1", rep.header.Get("Retry-After"))
					limited++
				} else {
					rep.requireRefused(t, http.StatusUnauthorized)
				}
			}
			return limited
		}
		assert.Equal(t, 80, flood(100, "203.0.113.1"))
		assert.Equal(t, 0, flood(20, "203.0.113.2"))
		assert.Equal(t, 1, flood(1, "203.0.113.2"))
		time.Sleep(time.Second)
		assert.Equal(t, 10, flood(20, "203.0.113.1"))
		time.Sleep(3 * time.Second)
		assert.Equal(t, 0, flood(20, "203.0.113.2"))
	})
}

func TestSourcesForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sources{rate: 10, burst: 20, most: 100}
		at := func(i int) netip.Prefix {
			return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
		}
		const n = 350
		for i := range n {
			require.True(t, s.allow(at(i)))
			require.LessOrEqual(t, len(s.recent)+len(s.old), 200)
		}
		for range 19 {
			require.True(t, s.allow(at(n-1)))
		}
		require.False(t, s.allow(at(n-1)))
		time.Sleep(2*time.Second + 1)
		s.allow(at(0))
		assert.Len(t, s.recent, 1)
		for range 20 {
			require.True(t, s.allow(at(n-1)))
		}
		require.False(t, s.allow(at(n-1)), "its bucket is the same one")
		time.Sleep(2*time.Second + 1)
		s.allow(at(0))
		time.Sleep(2*time.Second + 1)
		s.allow(at(0))
		assert.NotContains(t, s.old, at(n-1))
	})
}

func TestBlockedAndClosed(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.server.Block(netip.MustParsePrefix("192.0.2.0/24"), time.Minute)
		r.do("GET", "/relay/key", "").requireRefused(t, http.StatusForbidden)
		time.Sleep(time.Minute)
		assert.Equal(t, http.StatusOK, r.do("GET", "/relay/key", "").status)
		require.NoError(t, r.server.Drain(t.Context()))
		r.do("GET", "/relay/key", "").requireRefused(t, http.StatusServiceUnavailable)
	})
}

// TestStorageFull: whoever stores is told, what is there can be fetched, and then
// there is room again.
func TestStorageFull(t *testing.T) {
	bubble(t, func(r *rig) {
		r.server.Inbox = inbox.NewMemory(&inbox.MemoryOptions{MaxBytes: 100_000})
		r.server.State = inbox.NewMemoryState(&inbox.MemoryOptions{MaxBytes: 1})
	}, func(t *testing.T, r *rig) {
		r.mustStore(r.alice, r.bob.Public(), strings.Repeat("x", 60_000))
		rep := r.store(r.alice, r.bob.Public(), strings.Repeat("y", 60_000))
		rep.requireRefused(t, http.StatusServiceUnavailable)
		assert.Equal(t, `{"error":"storage full"}`, rep.body)
		q := query(r.bob, time.Now())
		items, _ := r.do("GET", "/relay/fetch"+q, "").list(t)
		assert.Len(t, items, 1)
		r.do("GET", "/relay/fetch"+q, "").requireRefused(t, http.StatusUnauthorized, "remembered in memory")
		r.mustStore(r.alice, r.bob.Public(), strings.Repeat("y", 60_000))
		assert.Equal(t, 2, strings.Count(r.log.String(), "a restart will forget"), "told once for each ledger")
	})
}

// TestBodyMemory: bodies that are under way count, and one source has a quarter.
func TestBodyMemory(t *testing.T) {
	bubble(t, func(r *rig) {
		r.BodyBytes = 4 << 20
		r.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	}, func(t *testing.T, r *rig) {
		half := func(client string) *raw {
			c, err := r.listener.dial()
			require.NoError(t, err)
			_, err = fmt.Fprintf(c, "POST /relay/store HTTP/1.1\r\nHost: relay\r\nX-Forwarded-For: %s\r\nContent-Length: 1000000\r\n\r\n%s",
				client, strings.Repeat(" ", 600_000))
			require.NoError(t, err)
			synctest.Wait()
			return &raw{c, t}
		}
		store := func(client string) reply {
			return r.do("POST", "/relay/store", storeBody(r.alice, r.bob.Public(), `"`+strings.Repeat("x", 300_000)+`"`), "X-Forwarded-For", client)
		}
		c := half("203.0.113.1")
		defer c.Close()
		sum, _ := r.mailbox.bodies.taken()
		assert.EqualValues(t, 1<<20, sum)
		store("203.0.113.1").requireRefused(t, http.StatusServiceUnavailable)
		assert.Equal(t, http.StatusOK, store("203.0.113.2").status)
		for i := range 3 {
			defer half(fmt.Sprintf("203.0.113.1%d", i)).Close()
		}
		store("203.0.113.2").requireRefused(t, http.StatusServiceUnavailable)
		time.Sleep(31 * time.Second) // they are cut
		synctest.Wait()
		assert.Equal(t, http.StatusOK, store("203.0.113.1").status)
		requireFree(t, &r.mailbox.bodies)
	})
}

// TestSlowBody: a body that trickles in is cut after 30 s, and holds little.
func TestSlowBody(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		c, err := r.listener.dial()
		require.NoError(t, err)
		defer c.Close()
		began := time.Now()
		_, err = fmt.Fprintf(c, "POST /relay/store HTTP/1.1\r\nHost: relay\r\nContent-Length: 1000000\r\n\r\n")
		require.NoError(t, err)
		answer := make(chan *http.Response, 1)
		go func() {
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if assert.NoError(t, err) {
				answer <- resp
			}
		}()
		for err == nil {
			time.Sleep(4 * time.Second)
			sum, _ := r.mailbox.bodies.taken()
			assert.LessOrEqual(t, sum, int64(8<<10))
			_, err = c.Write([]byte(" "))
		}
		resp := <-answer
		assert.Equal(t, http.StatusRequestTimeout, resp.StatusCode)
		assert.InDelta(t, 30, time.Since(began).Seconds(), 4)
	})
}

// TestNothingLogged: neither a blob nor a signature nor a query, at any level.
func TestNothingLogged(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		const marker = "plaintext-marker"
		r.mustStore(r.alice, r.bob.Public(), marker)
		q := query(r.bob, time.Now())
		r.do("GET", "/relay/fetch"+q+"&x="+marker, "").list(t)
		r.do("GET", "/relay/fetch"+q, "").requireRefused(t, http.StatusUnauthorized)
		r.store(r.alice, r.bob.Public(), marker+strings.Repeat("x", 2<<20)).requireRefused(t, http.StatusRequestEntityTooLarge)
		c := r.begin("GET", "/relay/fetch"+query(r.bob, time.Now().Add(time.Millisecond)))
		_ = c.Close()
		synctest.Wait()
		for _, secret := range []string{marker, q[len(q)-128:], r.alice.String(), r.bob.String(), "pubkey"} {
			assert.NotContains(t, r.log.String(), secret)
		}
		stats := fmt.Sprintf("%+v", r.server.Stats())
		assert.NotContains(t, stats, marker)
	})
}

func TestHandlerNeedsInbox(t *testing.T) {
	srv := new(relay.Server)
	defer srv.Close()
	assert.Panics(t, func() { Handler(srv, Open{}, nil) })
}

func TestNoSessions(t *testing.T) {
	srv := new(relay.Server)
	defer srv.Close()
	c := srv.Dial(Dialect{})
	_, _, err := c.Read()
	assert.Error(t, err)
	_, _, err = Dialect{}.Render(nil, 0, &relay.Message{})
	assert.Equal(t, relay.ErrUnfit, err)
}
