package mailbox

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
)

func TestFetchVectors(t *testing.T) {
	var cases []struct {
		Seed, Pubkey, Signature string
		Timestamp               int64
	}
	readVectors(t, "mailbox_fetch.json", &cases)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.UnixMilli(cases[0].Timestamp)))
		r := newRig(t, nil)
		for _, c := range cases {
			seed, err := hex.DecodeString(c.Seed)
			require.NoError(t, err)
			id, err := crypto.IdentityFromSeed(seed)
			require.NoError(t, err)
			q := fmt.Sprintf("?signature=%s&timestamp=%d&pubkey=%s", c.Signature, c.Timestamp, c.Pubkey)
			assert.Equal(t, query(id, time.UnixMilli(c.Timestamp)), fmt.Sprintf("?pubkey=%s&timestamp=%d&signature=%s", c.Pubkey, c.Timestamp, c.Signature))
			items, _ := r.do("GET", "/relay/fetch"+q, "").list(t)
			assert.Empty(t, items)
		}
	})
}

func TestFetchAnswer(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		rep := r.do("GET", "/relay/fetch"+query(r.bob, time.Now()), "")
		assert.Equal(t, `{"blobs":[],"count":0}`, rep.body)
		r.mustStore(r.alice, r.bob.Public(), "a\"\u2028")
		body := storeBody(r.alice, r.bob.Public(), `{"b":"\ud800"}`)
		require.Equal(t, http.StatusOK, r.do("POST", "/relay/store", body).status)
		body = storeBody(r.alice, r.bob.Public(), `"\ud800x"`)
		require.Equal(t, http.StatusOK, r.do("POST", "/relay/store", body).status)
		time.Sleep(time.Second)
		rep = r.do("GET", "/relay/fetch"+query(r.bob, time.Now()), "")
		tail := `","sender":"` + r.alice.String() + `","timestamp":1767225600000}`
		assert.Equal(t, `{"blobs":[{"blob":"a\"`+"\u2028"+tail+`,{"blob":"{\"b\":\"\\ud800\"}`+tail+`,{"blob":"\ud800x`+tail+`],"count":3}`, rep.body)
		assert.Equal(t, "no-store", rep.header.Get("Cache-Control"))
		assert.Equal(t, fmt.Sprint(len(rep.body)), rep.header.Get("Content-Length"))
		assert.Equal(t, "application/json", rep.header.Get("Content-Type"))
		time.Sleep(time.Second)
		assert.Empty(t, r.fetch(r.bob, ""))
		st := r.server.Stats()
		assert.EqualValues(t, 3, st.Accepted)
		assert.EqualValues(t, 3, st.Delivered)
		assert.Zero(t, st.Held)
	})
}

// TestFetchMalformed: what is missing, repeated or not in its form is 400, before
// anything else is looked at; what is unknown is ignored.
func TestFetchMalformed(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.mustStore(r.alice, r.bob.Public(), "x")
		q := query(r.bob, time.Now())
		stamp := fmt.Sprint(time.Now().UnixMilli())
		key := r.bob.String()
		sig := q[len(q)-128:]
		for _, path := range []string{"/relay/fetch", "/relay/stream"} {
			for _, bad := range []string{
				"", "?", "?pubkey=" + key, "?pubkey=" + key + "&timestamp=" + stamp, "?pubkey=&timestamp=" + stamp + "&signature=" + sig,
				q + "&pubkey=" + key, q + "&timestamp=" + stamp, q + "&signature=", q + "&lease=1&lease=1",
				strings.Replace(q, stamp, stamp[:10], 1), strings.Replace(q, stamp, stamp+"0", 1), strings.Replace(q, stamp, "+"+stamp[1:], 1),
				strings.Replace(q, stamp, stamp[:12]+".", 1), strings.Replace(q, stamp, "0x"+stamp[2:], 1), strings.Replace(q, stamp, "%D9%A1"+stamp[:11], 1),
				strings.Replace(q, key, key[1:], 1), strings.Replace(q, key, key+"0", 1), strings.Replace(q, key, "0x"+key[2:], 1),
				q[:len(q)-1], q + "0", q[:len(q)-1] + "g", q + "&%", q + ";a=b",
				q + "&lease=0", q + "&lease=-1", q + "&lease=3601", q + "&lease=x", q + "&lease=1e1", q + "&lease=99999999999999999999",
			} {
				r.do("GET", path+bad, "").requireRefused(t, http.StatusBadRequest, path, bad)
			}
		}
		for _, bad := range []string{
			q + "&limit=0", q + "&limit=-1", q + "&limit=x", q + "&limit=1&limit=1", q + "&wait=-1", q + "&wait=x", q + "&wait=1&wait=1",
		} {
			r.do("GET", "/relay/fetch"+bad, "").requireRefused(t, http.StatusBadRequest, bad)
		}
		rep := r.do("GET", "/relay/fetch"+q[:len(q)-1]+"0", "")
		if sig[127] != '0' {
			rep.requireRefused(t, http.StatusUnauthorized)
		}
		assert.Equal(t, []string{"x"}, r.pending(r.bob))
		items, _ := r.do("GET", "/relay/fetch"+q+"&a=b&a=c&since=0", "").list(t)
		assert.Equal(t, []string{"x"}, blobs(items))
	})
}

func TestTimestamps(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		for _, off := range []time.Duration{299 * time.Second, 300 * time.Second} {
			for _, off := range []time.Duration{off, -off} {
				r.do("GET", "/relay/fetch"+query(r.bob, time.Now().Add(off)), "").list(t)
			}
		}
		for _, off := range []time.Duration{300_001 * time.Millisecond, 301 * time.Second, 365 * 24 * time.Hour, 10 * 365 * 24 * time.Hour} {
			for _, off := range []time.Duration{off, -off} {
				rep := r.do("GET", "/relay/fetch"+query(r.bob, time.Now().Add(off)), "")
				rep.requireRefused(t, http.StatusUnauthorized)
				date, err := http.ParseTime(rep.header.Get("Date"))
				require.NoError(t, err)
				assert.WithinDuration(t, time.Now(), date, time.Second)
			}
		}
	})
}

// TestReplay: a timestamp counts once, until it is too old, also across a restart.
func TestReplay(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		q := query(r.bob, time.Now().Add(5*time.Minute))
		r.do("GET", "/relay/fetch"+q, "").list(t)
		r.mustStore(r.alice, r.bob.Public(), "x")
		for _, params := range []string{"", "&lease=60", "&other=1"} {
			r.do("GET", "/relay/fetch"+q+params, "").requireRefused(t, http.StatusUnauthorized)
		}
		r.do("GET", "/relay/stream"+q, "").requireRefused(t, http.StatusUnauthorized)
		r.restart()
		time.Sleep(10 * time.Minute)
		r.do("GET", "/relay/fetch"+q, "").requireRefused(t, http.StatusUnauthorized, "to the last millisecond")
		time.Sleep(time.Millisecond)
		r.do("GET", "/relay/fetch"+q, "").requireRefused(t, http.StatusUnauthorized, "too old now")
		assert.Equal(t, []string{"x"}, r.pending(r.bob))
	})
}

// TestPerKey: a key has 1,000 timestamps, which it gets back; polling every second
// stays under it, and others have theirs.
func TestPerKey(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		items := func() (n int) {
			for _, err := range r.server.State.Range(context.Background(), "mailbox.used", "") {
				require.NoError(t, err)
				n++
			}
			return n
		}
		for range 400 {
			r.fetch(r.bob, "")
			time.Sleep(time.Second)
		}
		assert.LessOrEqual(t, items(), 302, "old ones are deleted")
		time.Sleep(6 * time.Minute)
		for i := range 999 {
			require.NoError(t, r.mailbox.used.add(t.Context(), r.bob.Public(), time.Now().Add(5*time.Minute), relay.ID{byte(i), byte(i >> 8)}))
		}
		r.fetch(r.bob, "")
		time.Sleep(time.Second)
		r.do("GET", "/relay/fetch"+query(r.bob, time.Now()), "").requireRefused(t, http.StatusTooManyRequests)
		r.fetch(r.alice, "")
		time.Sleep(5 * time.Minute)
		r.fetch(r.bob, "")
	})
}

// TestSameRequest: of requests that are the same exactly one gets the blobs; one that
// waits has its turn when the first fails.
func TestSameRequest(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.mustStore(r.alice, r.bob.Public(), "a", "b")
		q := "/relay/fetch" + query(r.bob, time.Now())
		var mu sync.Mutex
		var wg sync.WaitGroup
		count := map[int]int{}
		for range 10 {
			wg.Go(func() {
				rep := r.do("GET", q, "")
				mu.Lock()
				defer mu.Unlock()
				count[rep.status]++
				if rep.status == http.StatusOK {
					items, _ := rep.list(t)
					assert.Equal(t, []string{"a", "b"}, blobs(items))
				}
			})
		}
		wg.Wait()
		assert.Equal(t, map[int]int{http.StatusOK: 1, http.StatusUnauthorized: 9}, count)
	})
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.mustStore(r.alice, r.bob.Public(), "a")
		q := "/relay/fetch" + query(r.bob, time.Now())
		first := r.begin("GET", q)
		first.read(10)
		second := make(chan reply)
		go func() { second <- r.do("GET", q, "") }()
		synctest.Wait()
		first.Close()
		items, _ := (<-second).list(t)
		assert.Equal(t, []string{"a"}, blobs(items))
		r.do("GET", q, "").requireRefused(t, http.StatusUnauthorized)
	})
}

func TestLimitAndMore(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.mustStore(r.alice, r.bob.Public(), "a", "b", "c", "d", "e")
		for i, want := range []string{"[a b] true", "[c d] true", "[e] false", "[] false"} {
			items, more := r.do("GET", "/relay/fetch"+query(r.bob, time.Now().Add(time.Duration(i)))+"&limit=2", "").list(t)
			assert.Equal(t, want, fmt.Sprint(blobs(items), more))
			time.Sleep(time.Millisecond)
		}
		r.mustStore(r.alice, r.bob.Public(), "f", "g")
		items, more := r.do("GET", "/relay/fetch"+query(r.bob, time.Now())+"&limit=2", "").list(t)
		assert.Len(t, items, 2)
		assert.False(t, more)
	})
}

// TestLease: leased blobs are hidden, come back when the lease is over, and are gone
// once acknowledged.
func TestLease(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.mustStore(r.alice, r.bob.Public(), "a", "b", "c")
		items := r.fetch(r.bob, "&lease=60&limit=2")
		require.Equal(t, []string{"a", "b"}, blobs(items))
		assert.Len(t, items[0].ID, 64)
		time.Sleep(time.Millisecond)
		rest := r.fetch(r.bob, "")
		require.Equal(t, []string{"c"}, blobs(rest))
		assert.Empty(t, rest[0].ID)
		assert.Equal(t, `{"status":"ok"}`, r.ack(r.bob, items[0].ID).body)
		time.Sleep(60*time.Second - 2*time.Millisecond)
		assert.Empty(t, r.fetch(r.bob, "&lease=60"))
		time.Sleep(time.Millisecond)
		again := r.fetch(r.bob, "&lease=60")
		assert.Equal(t, items[1:], again)
		for range 2 {
			assert.Equal(t, http.StatusOK, r.ack(r.bob, items[0].ID, items[1].ID, items[1].ID).status)
		}
		time.Sleep(time.Hour)
		assert.Empty(t, r.fetch(r.bob, ""))
		st := r.server.Stats()
		assert.EqualValues(t, 3, st.Delivered)
		assert.Zero(t, st.Held)
	})
}

// TestLeaseEndsWithProcess: ids of another process name nothing, since numbers may
// be given again.
func TestLeaseEndsWithProcess(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.mustStore(r.alice, r.bob.Public(), "a")
		items := r.fetch(r.bob, "&lease=60")
		r.server.Inbox = inbox.NewMemory(nil)
		r.restart()
		r.mustStore(r.alice, r.bob.Public(), "b")
		require.Equal(t, http.StatusOK, r.ack(r.bob, items[0].ID).status)
		assert.Equal(t, []string{"b"}, r.pending(r.bob))
	})
}

func TestAck(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.mustStore(r.alice, r.bob.Public(), "a", "b")
		items := r.fetch(r.bob, "&lease=60")
		id := items[0].ID
		stamp := fmt.Sprint(time.Now().UnixMilli())
		signed := func(by *crypto.Identity, key, stamp, ids string) string {
			sig := by.Sign([]byte(key + ":" + stamp + ":ack:" + strings.ReplaceAll(ids, `"`, "")))
			return fmt.Sprintf(`{"pubkey":"%s","timestamp":%s,"ids":[%s],"signature":"%x"}`, key, stamp, ids, sig)
		}
		good := signed(r.bob, r.bob.String(), stamp, `"`+id+`"`)
		for name, body := range map[string]string{
			"empty": "", "no JSON": good[1:], "list": "[" + good + "]",
			"no ids":    strings.Replace(good, `"ids"`, `"x"`, 1),
			"null ids":  `{"ids":null,` + good[1:len(good)-1] + `,"ids":null}`,
			"numbers":   signed(r.bob, r.bob.String(), stamp, `1`),
			"id, short": signed(r.bob, r.bob.String(), stamp, `"`+id[1:]+`"`),
			"id, z":     signed(r.bob, r.bob.String(), stamp, `"z`+id[1:]+`"`),
			"no key":    strings.Replace(good, `"pubkey"`, `"x"`, 1),
			"stamp, 10": signed(r.bob, r.bob.String(), stamp[:10], `"`+id+`"`),
			"stamp, 1e": signed(r.bob, r.bob.String(), `"`+stamp[:10]+`e+2"`, `"`+id+`"`),
		} {
			r.do("POST", "/relay/ack", body).requireRefused(t, http.StatusBadRequest, name)
		}
		old := fmt.Sprint(time.Now().Add(-301 * time.Second).UnixMilli())
		for name, body := range map[string]string{
			"old":          signed(r.bob, r.bob.String(), old, `"`+id+`"`),
			"another's":    signed(r.alice, r.bob.String(), stamp, `"`+id+`"`),
			"another id":   strings.Replace(good, id, items[1].ID, 1),
			"of a fetch":   fmt.Sprintf(`{"pubkey":"%s","timestamp":%s,"ids":[],"signature":"%x"}`, r.bob, stamp, r.bob.Sign([]byte(r.bob.String()+":"+stamp))),
			"no signature": strings.Replace(good, good[len(good)-130:len(good)-2], strings.Repeat("0", 128), 1),
		} {
			r.do("POST", "/relay/ack", body).requireRefused(t, http.StatusUnauthorized, name)
		}
		r.do("POST", "/relay/ack", good+strings.Repeat(" ", ackBytes)).requireRefused(t, http.StatusRequestEntityTooLarge)
		// Of another mailbox: it names nothing there.
		assert.Equal(t, http.StatusOK, r.ack(r.alice, id).status)
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"a", "b"}, r.pending(r.bob))
		// A number, a string; and acknowledging uses up no timestamp.
		for _, ts := range []string{stamp, `"` + stamp + `"`} {
			body := strings.Replace(good, `"timestamp":`+stamp, `"timestamp":`+ts, 1)
			assert.Equal(t, http.StatusOK, r.do("POST", "/relay/ack", body).status)
		}
		assert.Equal(t, []string{"b"}, r.pending(r.bob))
		assert.Equal(t, http.StatusOK, r.ack(r.bob).status, "none")
	})
}

// TestForgedIDs: a reader who makes ids up changes nothing but his own mailbox.
func TestForgedIDs(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		carol := identity(t, 3)
		r.mustStore(r.alice, r.bob.Public(), "mine")
		own := r.fetch(r.bob, "&lease=1")[0]
		l := letter{from: r.alice.Public(), to: carol.Public(), blob: []byte("for carol")}
		forged := own.ID[:32] + fmt.Sprintf("%x", l.id())
		require.Equal(t, http.StatusOK, r.ack(r.bob, forged, own.ID[:16]+strings.Repeat("f", 48)).status)
		r.mustStore(r.alice, carol.Public(), "for carol")
		assert.Equal(t, []string{"for carol"}, r.pending(carol))
	})
}

func TestLongPoll(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		began := time.Now()
		assert.Empty(t, r.fetch(r.bob, "&wait=30"))
		assert.Equal(t, 30*time.Second, time.Since(began))
		began = time.Now()
		assert.Empty(t, r.fetch(r.bob, "&wait=3600"))
		assert.Equal(t, time.Minute, time.Since(began), "shortened")
		assert.Empty(t, r.fetch(r.bob, "&wait=9&lease=1"), "a lease counts from the answer")

		began = time.Now()
		go func() {
			time.Sleep(25 * time.Second)
			r.mustStore(r.alice, r.bob.Public(), "late")
		}()
		assert.Equal(t, []string{"late"}, blobs(r.fetch(r.bob, "&wait=30")))
		assert.Equal(t, 25*time.Second, time.Since(began), "at once")

		// What comes back from a lease is found too.
		r.mustStore(r.alice, r.bob.Public(), "leased")
		require.Len(t, r.fetch(r.bob, "&lease=5"), 1)
		time.Sleep(time.Millisecond)
		assert.Equal(t, []string{"leased"}, blobs(r.fetch(r.bob, "&wait=30")))
	})
}

// TestWaitingIsBounded: in all, and for one key.
func TestWaitingIsBounded(t *testing.T) {
	bubble(t, func(r *rig) { r.Waiting, r.WaitingKey = 3, 2 }, func(t *testing.T, r *rig) {
		var wg sync.WaitGroup
		wait := func(id *crypto.Identity) {
			wg.Go(func() { r.fetch(id, "&wait=30") })
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		wait(r.bob)
		wait(r.bob)
		r.do("GET", "/relay/fetch"+query(r.bob, time.Now())+"&wait=1", "").requireRefused(t, http.StatusTooManyRequests)
		r.do("GET", "/relay/stream"+query(r.bob, time.Now().Add(time.Millisecond)), "").requireRefused(t, http.StatusTooManyRequests)
		wait(r.alice)
		r.do("GET", "/relay/fetch"+query(r.alice, time.Now())+"&wait=1", "").requireRefused(t, http.StatusTooManyRequests)
		r.fetch(r.alice, "")
		wg.Wait()
		requireFree(t, &r.mailbox.waiting)
	})
}

// TestSameWaitingIsBounded: a request that waits for the same one counts as well.
func TestSameWaitingIsBounded(t *testing.T) {
	bubble(t, func(r *rig) { r.WaitingKey = 2 }, func(t *testing.T, r *rig) {
		same := "/relay/fetch" + query(r.bob, time.Now()) + "&wait=30"
		got := make(chan int, 2)
		for range 2 {
			go func() { got <- r.do("GET", same, "").status }()
			synctest.Wait()
		}
		r.do("GET", same, "").requireRefused(t, http.StatusTooManyRequests)
		assert.ElementsMatch(t, []int{http.StatusOK, http.StatusUnauthorized}, []int{<-got, <-got})
		requireFree(t, &r.mailbox.waiting)
	})
}

// TestLongPollEnds: when the client goes, what comes then stays; when the relay
// goes, the client is told.
func TestLongPollEnds(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		q := "/relay/fetch" + query(r.bob, time.Now()) + "&wait=30"
		go func() {
			_, err := r.try(ctx, "GET", q, "")
			done <- err
		}()
		synctest.Wait()
		cancel()
		require.Error(t, <-done)
		synctest.Wait()
		r.mustStore(r.alice, r.bob.Public(), "x")
		items, _ := r.do("GET", q, "").list(t)
		assert.Equal(t, []string{"x"}, blobs(items), "the timestamp was not used up")
		assert.NotContains(t, r.log.String(), "ERROR")
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	bubble(t, func(r *rig) { r.base = ctx }, func(t *testing.T, r *rig) {
		go func() {
			time.Sleep(time.Second)
			cancel()
		}()
		began := time.Now()
		r.do("GET", "/relay/fetch"+query(r.bob, time.Now())+"&wait=30", "").requireRefused(t, http.StatusServiceUnavailable)
		assert.Equal(t, time.Second, time.Since(began))
	})
}
