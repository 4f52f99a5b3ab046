package mailbox

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
)

// A nonces gives nonces.
type nonces byte

func (n *nonces) next() []byte {
	*n++
	return []byte{15: byte(*n)}
}

// signed makes a request of version 2.
func (r *rig) signed(id *crypto.Identity, n *nonces, method, target, body string) reply {
	r.t.Helper()
	return r.do(method, target, body, "Authorization", authorization(id, *r.Relay, method, target, body, time.Now(), n.next()))
}

// TestHeaderText holds the bytes that are signed: label, then each part with its
// length before it, u32 big-endian.
func TestHeaderText(t *testing.T) {
	got := headerText(crypto.PublicKey{1}, "GET", "/a?b=c", []byte("body"), "1767225600000", []byte{9})
	want := "736f74746f206d61696c626f7820763200" +
		"00000020" + "01" + strings.Repeat("00", 31) +
		"00000003" + "474554" +
		"00000006" + "2f613f623d63" +
		"00000020" + "230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5" +
		"0000000d" + "31373637323235363030303030" +
		"00000001" + "09"
	assert.Equal(t, want, hex.EncodeToString(got))
}

func TestHeaderRequests(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		var n nonces
		assert.Equal(t, `{"key":"`+r.Relay.String()+`"}`, r.do("GET", "/relay/key", "").body)
		store := fmt.Sprintf(`{"blob":"x","recipient":"%s"}`, r.bob)
		for range 2 {
			rep := r.signed(r.alice, &n, "POST", "/relay/store", store)
			require.Equal(t, http.StatusOK, rep.status, rep.body)
		}
		items, _ := r.signed(r.bob, &n, "GET", "/relay/fetch?lease=60&limit=5", "").list(t)
		require.Equal(t, []string{"x"}, blobs(items))
		assert.Equal(t, r.alice.String(), items[0].Sender)
		rep := r.signed(r.bob, &n, "POST", "/relay/ack", `{"ids":["`+items[0].ID+`"]}`)
		assert.Equal(t, `{"status":"ok"}`, rep.body)
		time.Sleep(time.Hour)
		assert.Empty(t, r.pending(r.bob))
	})
}

// TestHeaderRefused: every field is signed for this relay, this request and this
// time, and none can be left out or doubled.
func TestHeaderRefused(t *testing.T) {
	bubble(t, func(r *rig) {
		r.contacts = contacts{r.alice.Public(): true}
	}, func(t *testing.T, r *rig) {
		const target = "/relay/fetch?lease=60"
		var n nonces
		auth := func(id *crypto.Identity, key crypto.PublicKey, method, target, body string, at time.Time) string {
			return authorization(id, key, method, target, body, at, n.next())
		}
		good := auth(r.alice, *r.Relay, "GET", target, "", time.Now())
		for name, header := range map[string]string{
			"empty":    "Sotto ",
			"no nonce": good[:strings.Index(good, "nonce=")] + good[strings.Index(good, "sig="):],
			"twice":    good + ",ts=" + fmt.Sprint(time.Now().UnixMilli()),
			"unknown":  good + ",x=y", "comma": good + ",", "key, 62": strings.Replace(good, "key=", "key=\x00", 1)[:6],
			"ts, 10":   strings.Replace(good, "ts=1767225600", "ts=", 1),
			"nonce, z": strings.Replace(good, "nonce=0", "nonce=z", 1), "sig, cut": good[:len(good)-2],
		} {
			r.do("GET", target, "", "Authorization", header).requireRefused(t, http.StatusBadRequest, name)
		}
		for name, header := range map[string]string{
			"another relay":  auth(r.alice, r.bob.Public(), "GET", target, "", time.Now()),
			"another method": auth(r.alice, *r.Relay, "POST", target, "", time.Now()),
			"another query":  auth(r.alice, *r.Relay, "GET", "/relay/fetch?lease=61", "", time.Now()),
			"another path":   auth(r.alice, *r.Relay, "GET", "/relay/stream?lease=60", "", time.Now()),
			"a body":         auth(r.alice, *r.Relay, "GET", target, "x", time.Now()),
			"old":            auth(r.alice, *r.Relay, "GET", target, "", time.Now().Add(-301*time.Second)),
			"early":          auth(r.alice, *r.Relay, "GET", target, "", time.Now().Add(301*time.Second)),
			"another nonce":  strings.Replace(good, "nonce=00", "nonce=01", 1),
			"another time":   strings.Replace(good, "ts=1767225600000", "ts=1767225600001", 1),
			"another key":    strings.Replace(good, r.alice.String(), r.bob.String(), 1),
		} {
			r.do("GET", target, "", "Authorization", header).requireRefused(t, http.StatusUnauthorized, name)
		}
		r.do("GET", target, "", "Authorization", auth(r.bob, *r.Relay, "GET", target, "", time.Now())).requireRefused(t, http.StatusForbidden)
		for _, elsewhere := range []string{"&pubkey=" + r.alice.String(), "&signature=", "&timestamp=1"} {
			header := auth(r.alice, *r.Relay, "GET", target+elsewhere, "", time.Now())
			r.do("GET", target+elsewhere, "", "Authorization", header).requireRefused(t, http.StatusBadRequest)
		}
		for path, bodies := range map[string][]string{
			"/relay/store": {
				fmt.Sprintf(`{"recipient":"%s","blob":"x","senderPubkey":"%s"}`, r.bob, r.alice),
				fmt.Sprintf(`{"recipient":"%s","blob":"x","signature":null}`, r.bob), `{"blob":"x"}`,
			},
			"/relay/ack": {`{"ids":[],"pubkey":""}`, `{"ids":[],"timestamp":0}`, `{"ids":[],"signature":""}`},
		} {
			for _, body := range bodies {
				header := auth(r.alice, *r.Relay, "POST", path, body, time.Now())
				r.do("POST", path, body, "Authorization", header).requireRefused(t, http.StatusBadRequest, body)
			}
		}
		r.do("GET", target, "", "Authorization", strings.Replace(good, "Sotto", "sOTTO", 1)).list(t)
		r.do("GET", target, "", "Authorization", good).requireRefused(t, http.StatusUnauthorized, "used up")
		r.do("GET", target, "", "Authorization", "Basic eDp5").requireRefused(t, http.StatusBadRequest, "somebody else's, so version 1")
	})
}

// TestNonces: one counts once, whatever became of its request, also across a restart,
// and a key has so many.
func TestNonces(t *testing.T) {
	bubble(t, func(r *rig) { r.PerKey = 10 }, func(t *testing.T, r *rig) {
		var n nonces
		store := fmt.Sprintf(`{"recipient":"%s","blob":"x"}`, r.bob)
		header := authorization(r.alice, *r.Relay, "POST", "/relay/store", store, time.Now(), n.next())
		assert.Equal(t, http.StatusOK, r.do("POST", "/relay/store", store, "Authorization", header).status)
		r.do("POST", "/relay/store", store, "Authorization", header).requireRefused(t, http.StatusUnauthorized)
		r.restart()
		r.do("POST", "/relay/store", store, "Authorization", header).requireRefused(t, http.StatusUnauthorized)
		again := nonces(0) // the same ones, for another request at another time
		time.Sleep(time.Second)
		r.signed(r.alice, &again, "POST", "/relay/ack", `{"ids":[]}`).requireRefused(t, http.StatusUnauthorized)
		for range 9 {
			assert.Equal(t, http.StatusOK, r.signed(r.alice, &n, "POST", "/relay/ack", `{"ids":[]}`).status)
		}
		r.signed(r.alice, &n, "POST", "/relay/ack", `{"ids":[]}`).requireRefused(t, http.StatusTooManyRequests)
		time.Sleep(5*time.Minute + time.Millisecond)
		assert.Equal(t, http.StatusOK, r.signed(r.alice, &n, "POST", "/relay/ack", `{"ids":[]}`).status)
	})
}

func TestWithoutRelayKey(t *testing.T) {
	bubble(t, func(r *rig) { r.Relay = nil }, func(t *testing.T, r *rig) {
		r.do("GET", "/relay/key", "").requireRefused(t, http.StatusNotFound)
		header := authorization(r.alice, crypto.PublicKey{}, "GET", "/relay/fetch", "", time.Now(), make([]byte, 16))
		r.do("GET", "/relay/fetch", "", "Authorization", header).requireRefused(t, http.StatusUnauthorized)
		r.mustStore(r.alice, r.bob.Public(), "x")
		assert.Len(t, r.fetch(r.bob, ""), 1)
	})
}
