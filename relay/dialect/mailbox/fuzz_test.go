package mailbox

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
)

// FuzzRequest: whatever is asked, the answer has one of a few statuses and is JSON
// of a bounded size, and nothing is stored that is not answered as stored.
func FuzzRequest(f *testing.F) {
	alice, bob := identity(f, 1), identity(f, 2)
	key := identity(f, relaySeed).Public()
	now := time.Now()
	f.Add("POST", "/relay/store", "", storeBody(alice, bob.Public(), `{"1":"\ud800"}`))
	f.Add("POST", "/relay/store", authorization(alice, key, "POST", "/relay/store", "{}", now, make([]byte, 16)), "{}")
	f.Add("POST", "/relay/ack", "", `{"pubkey":"`+bob.String()+`","timestamp":1767225600000,"ids":["00"],"signature":""}`)
	f.Add("GET", "/relay/fetch"+query(bob, now)+"&limit=1&lease=60", "", "")
	f.Add("GET", "/relay/key", "", "")
	f.Add("OPTIONS", "/relay/fetch", "", "")
	srv := &relay.Server{Inbox: inbox.NewMemory(nil), Limits: relay.MaxLimits()}
	f.Cleanup(func() { _ = srv.Close() })
	h := Handler(srv, Open{}, &Options{Relay: &key, MaxWait: time.Millisecond})
	f.Fuzz(func(t *testing.T, method, target, auth, body string) {
		if u, err := url.ParseRequestURI(target); err != nil || u.Host != "" || u.Path == "/relay/stream" || strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" || method == "" {
			return
		}
		r := httptest.NewRequest("GET", "/", strings.NewReader(body))
		r.Method, r.RequestURI = method, target
		r.URL, _ = url.ParseRequestURI(target)
		r.ContentLength = int64(len(body))
		r.Header.Set("Authorization", auth)
		w := httptest.NewRecorder()
		before := srv.Stats().Accepted
		h.ServeHTTP(w, r)
		require.True(t, srv.Stats().Accepted == before || strings.HasPrefix(w.Body.String(), `{"status":"stored"`))
		require.Contains(t, []int{200, 204, 400, 401, 404, 405, 413, 415, 429}, w.Code)
		require.Less(t, w.Body.Len(), 1<<10)
		if w.Code != 204 {
			require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		}
	})
}
