package mailbox

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/internal/ecma"
	"github.com/sotto-relay/sotto/relay"
)

// TestStringifyVectors: what a JavaScript client signed verifies, whatever the
// spelling of the body, and comes back as the string that it was, or as the text
// of the value.
func TestStringifyVectors(t *testing.T) {
	var cases []struct {
		Name, Recipient, Sender, Signature string
		Raw                                string `json:"blob_raw_json"`
	}
	readVectors(t, "json_stringify.json", &cases)
	bubble(t, nil, func(t *testing.T, r *rig) {
		for _, c := range cases {
			body := fmt.Sprintf("{\n \"senderPubkey\" : %q,\t\"signature\":%q, \"blob\":%s,\r\n\"recipient\":%q , \"other\":[{}]}",
				c.Sender, c.Signature, c.Raw, c.Recipient)
			rep := r.do("POST", "/relay/store", body)
			require.Equal(t, http.StatusOK, rep.status, "%s: %s", c.Name, rep.body)
		}
		to, err := crypto.ParsePublicKey(cases[0].Recipient)
		require.NoError(t, err)
		i := 0
		for e, err := range r.server.Inbox.Entries(context.Background(), address(to), 0) {
			require.NoError(t, err)
			want, err := ecma.Stringify([]byte(cases[i].Raw))
			require.NoError(t, err)
			if want[0] != '"' {
				want = ecma.AppendEscaped([]byte{'"'}, want)
				want = append(want, '"')
			}
			a := &answer{}
			a.blob(e, "")
			assert.Contains(t, string(a.buf), `{"blob":`+string(want)+`,"sender":"`+cases[i].Sender+`"`, cases[i].Name)
			i++
		}
		assert.Equal(t, len(cases), i)
	})
}

func TestStoreAnswer(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		time.Sleep(1234567 * time.Microsecond)
		rep := r.store(r.alice, r.bob.Public(), "hello")
		assert.Equal(t, `{"status":"stored","expires":"2026-01-31T00:00:01.234Z"}`, rep.body)
		assert.Equal(t, "no-store", rep.header.Get("Cache-Control"))
	})
}

// TestStoreMalformed: each fault is answered, and nothing is stored.
func TestStoreMalformed(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		good := storeBody(r.alice, r.bob.Public(), `"blob"`)
		to, from := r.bob.String(), r.alice.String()
		sig := good[strings.Index(good, `"signature":"`)+13:][:128]
		replace := func(old, new string) string {
			require.Contains(t, good, old)
			return strings.Replace(good, old, new, 1)
		}
		for name, body := range map[string]string{
			"empty": "", "no object": `["a"]`, "string": `"a"`, "cut": good[:len(good)-1], "two": good + good, "BOM": "\ufeff" + good,
			"no recipient":    replace(`"recipient"`, `"x"`),
			"no blob":         replace(`"blob":`, `"x":`),
			"no signature":    replace(`"signature"`, `"x"`),
			"no sender":       replace(`"senderPubkey"`, `"x"`),
			"empty blob":      replace(`"blob":"blob"`, `"blob":""`),
			"zero blob":       replace(`"blob":"blob"`, `"blob":-0.0`),
			"false blob":      replace(`"blob":"blob"`, `"blob":false`),
			"null blob":       replace(`"blob":"blob"`, `"blob":null`),
			"null signature":  replace(`"`+sig+`"`, `null`),
			"last counts":     replace(`}`, `,"blob":""}`),
			"number":          replace(`"`+to+`"`, `7`),
			"63 digits":       replace(to, to[1:]),
			"65 digits":       replace(to, to+"0"),
			"0x":              replace(to, "0x"+to[2:]),
			"no hex":          replace(to, "g"+to[1:]),
			"sender, 62":      replace(from, from[2:]),
			"sender, list":    replace(`"`+from+`"`, `["`+from+`"]`),
			"signature, 127":  replace(sig, sig[1:]),
			"signature, 129":  replace(sig, sig+"0"),
			"signature, z":    replace(sig, "z"+sig[1:]),
			"invalid UTF-8":   replace(`"blob":"blob"`, "\"blob\":\"\xff\""),
			"nested too deep": replace(`"blob":"blob"`, `"blob":`+strings.Repeat("[", 1000)+strings.Repeat("]", 1000)),
		} {
			r.do("POST", "/relay/store", body).requireRefused(t, http.StatusBadRequest, name)
		}
		for name, body := range map[string]string{
			"another blob":              replace(`"blob":"blob"`, `"blob":"blog"`),
			"another recipient":         replace(to, identity(t, 3).String()),
			"another sender":            replace(from, identity(t, 3).String()),
			"another signature":         replace(sig, strings.Repeat("0", 128)),
			"value, not string":         replace(`"blob":"blob"`, `"blob":["blob"]`),
			"upper-case, not as signed": replace(to, strings.ToUpper(to)),
			"as deep as may be":         replace(`"blob":"blob"`, `"blob":`+strings.Repeat("[", 999)+strings.Repeat("]", 999)),
		} {
			r.do("POST", "/relay/store", body).requireRefused(t, http.StatusUnauthorized, name)
		}
		for name, header := range map[string][]string{
			"form": {"Content-Type", "application/x-www-form-urlencoded"}, "text": {"Content-Type", "text/plain"},
			"UTF-16": {"Content-Type", "application/json; charset=utf-16"}, "broken": {"Content-Type", "application/json; ;"},
			"gzip": {"Content-Encoding", "gzip", "Content-Type", "application/json"},
		} {
			r.do("POST", "/relay/store", good, header...).requireRefused(t, http.StatusUnsupportedMediaType, name)
		}
		assert.Empty(t, r.pending(r.bob))
		assert.Zero(t, r.server.Stats().Accepted)

		for _, header := range [][]string{
			{"Content-Type", "application/json"}, {"Content-Type", "Application/JSON; charset=UTF-8"}, {"Content-Encoding", "identity"}, {},
		} {
			rep := r.do("POST", "/relay/store", good, header...)
			assert.Equal(t, http.StatusOK, rep.status, header)
		}
		assert.Equal(t, []string{"blob"}, r.pending(r.bob))
	})
}

// TestHexCase: in either case it is the same key and the same mailbox, and what was
// signed is what was written.
func TestHexCase(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		to := strings.ToUpper(r.bob.String())
		sig := r.alice.Sign([]byte(`{"recipient":"` + to + `","blob":"one"}`))
		body := fmt.Sprintf(`{"recipient":"%s","blob":"one","signature":"%X","senderPubkey":"%s"}`, to, sig, strings.ToUpper(r.alice.String()))
		rep := r.do("POST", "/relay/store", body)
		require.Equal(t, http.StatusOK, rep.status, rep.body)
		r.mustStore(r.alice, r.bob.Public(), "two", "one") // the last is a repeat

		stamp := fmt.Sprint(time.Now().UnixMilli())
		q := fmt.Sprintf("?pubkey=%s&timestamp=%s&signature=%X", to, stamp, r.bob.Sign([]byte(to+":"+stamp)))
		items, _ := r.do("GET", "/relay/fetch"+q, "").list(t)
		assert.Equal(t, []string{"one", "two"}, blobs(items))
		assert.Equal(t, r.alice.String(), items[0].Sender)
		// It is the same request, however the key is written.
		r.do("GET", "/relay/fetch"+query(r.bob, time.Now()), "").requireRefused(t, http.StatusUnauthorized)
	})
}

// TestBlobSize: a blob counts in bytes of UTF-8, whatever its spelling, and a body
// may be six times as long, and some more.
func TestBlobSize(t *testing.T) {
	const limit = 3000
	bubble(t, func(r *rig) {
		r.server.Limits.Dialects = map[string]relay.DialectLimits{"mailbox": {MessageBytes: limit}}
	}, func(t *testing.T, r *rig) {
		for name, blob := range map[string]string{
			"UTF-8":         `"` + strings.Repeat("é", limit/2) + `"`,
			"all escapes":   `"` + strings.Repeat(`\u0041`, limit) + `"`,
			"controls":      `"` + strings.Repeat(`\u0001`, limit) + `"`,
			"value":         `["` + strings.Repeat("x", limit-4) + `"]`,
			"lone, 3 bytes": `"` + strings.Repeat(`\ud800`, limit/3) + `"`,
		} {
			canonical, err := ecma.Stringify([]byte(blob))
			require.NoError(t, err)
			body := storeBody(r.alice, r.bob.Public(), string(canonical))
			body = strings.Replace(body, string(canonical), blob, 1)
			assert.Equal(t, http.StatusOK, r.do("POST", "/relay/store", body).status, name)
			more := blob[:len(blob)-1] + `x"`
			if blob[0] == '[' {
				more = blob[:len(blob)-2] + `x"]`
			}
			r.do("POST", "/relay/store", strings.Replace(body, blob, more, 1)).requireRefused(t, http.StatusRequestEntityTooLarge, name)
		}
		body := storeBody(r.alice, r.bob.Public(), `"x"`)
		padded := body + strings.Repeat(" ", 6*limit+bodyOverhead-len(body))
		assert.Equal(t, http.StatusOK, r.do("POST", "/relay/store", padded).status)
		r.do("POST", "/relay/store", padded+" ").requireRefused(t, http.StatusRequestEntityTooLarge)
		requireFree(t, &r.mailbox.bodies)
	})
	bubble(t, nil, func(t *testing.T, r *rig) {
		blob := strings.Repeat("x", 1<<20)
		r.mustStore(r.alice, r.bob.Public(), blob)
		r.store(r.alice, r.bob.Public(), blob+"x").requireRefused(t, http.StatusRequestEntityTooLarge)
		assert.Equal(t, []string{blob}, r.pending(r.bob))
	})
}

// TestQuotas: 100 blobs for a recipient, 100 of a sender; repeats aside.
func TestQuotas(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		for i := range 100 {
			r.mustStore(r.alice, r.bob.Public(), fmt.Sprint(i))
		}
		carol := identity(t, 3)
		r.store(carol, r.bob.Public(), "x").requireRefused(t, http.StatusTooManyRequests, "the recipient's")
		r.store(r.alice, carol.Public(), "x").requireRefused(t, http.StatusTooManyRequests, "the sender's")
		r.mustStore(r.alice, r.bob.Public(), "7")
		r.mustStore(r.bob, carol.Public(), "x")
		assert.Len(t, r.pending(r.bob), 100)

		require.Len(t, r.fetch(r.bob, "&limit=1"), 1)
		r.mustStore(carol, r.bob.Public(), "x")
		r.mustStore(r.alice, carol.Public(), "x")
		r.store(r.alice, carol.Public(), "y").requireRefused(t, http.StatusTooManyRequests)
	})
}

// TestLimits: each limit of the spec can be set.
func TestLimits(t *testing.T) {
	bubble(t, func(r *rig) {
		r.server.Limits.Dialects = map[string]relay.DialectLimits{
			"mailbox": {MessageBytes: 10, InboxMessages: 2, SenderTotal: 3, InboxTTL: time.Hour},
		}
		r.Repeats, r.Window, r.PerKey = time.Minute, time.Second, 3
	}, func(t *testing.T, r *rig) {
		r.store(r.alice, r.bob.Public(), "12345678901").requireRefused(t, http.StatusRequestEntityTooLarge)
		r.mustStore(r.alice, r.bob.Public(), "1234567890", "2")
		r.store(r.alice, r.bob.Public(), "3").requireRefused(t, http.StatusTooManyRequests)
		rep := r.store(r.alice, identity(t, 3).Public(), "3")
		assert.Contains(t, rep.body, `"2026-01-01T01:00:00.000Z"`)
		r.store(r.alice, identity(t, 3).Public(), "4").requireRefused(t, http.StatusTooManyRequests)
		require.Len(t, r.fetch(r.bob, ""), 2)
		time.Sleep(time.Minute - time.Millisecond)
		r.mustStore(r.alice, r.bob.Public(), "2")
		assert.Empty(t, r.pending(r.bob))
		time.Sleep(time.Millisecond)
		r.mustStore(r.alice, r.bob.Public(), "2")
		assert.Len(t, r.pending(r.bob), 1)
		r.do("GET", "/relay/fetch"+query(r.bob, time.Now().Add(-1001*time.Millisecond)), "").requireRefused(t, http.StatusUnauthorized)
		for i := range 3 {
			require.Len(t, r.fetch(r.bob, ""), 1-min(i, 1))
			time.Sleep(time.Millisecond)
		}
		r.do("GET", "/relay/fetch"+query(r.bob, time.Now()), "").requireRefused(t, http.StatusTooManyRequests)
		time.Sleep(time.Second)
		r.fetch(r.bob, "")
		time.Sleep(time.Hour)
		r.mustStore(r.alice, r.bob.Public(), "5")
		time.Sleep(time.Hour)
		assert.Empty(t, r.fetch(r.bob, ""))
	})
}

// TestThirtyDays: 100 blobs are there for 30 days, and not longer.
func TestThirtyDays(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		var want []string
		for i := range 100 {
			want = append(want, fmt.Sprint(i))
		}
		r.mustStore(r.alice, r.bob.Public(), want...)
		r.stop() // a server that idles for a month wakes up 2.6 million times
		time.Sleep(30*24*time.Hour - time.Millisecond)
		r.restart()
		items := r.fetch(r.bob, "&lease=1")
		assert.Equal(t, want, blobs(items))
		assert.Equal(t, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli(), items[0].Timestamp)
		time.Sleep(time.Millisecond)
		assert.Empty(t, r.fetch(r.bob, ""))
		r.mustStore(r.bob, r.alice.Public(), "x")
		time.Sleep(2 * time.Minute)
		st := r.server.Stats()
		assert.EqualValues(t, 100, st.Expired)
		assert.EqualValues(t, 1, st.Held)
	})
}

// TestRepeats: a blob is stored once, while it is pending and for ten minutes after
// it was removed, in either way and across a restart; then it is another one.
func TestRepeats(t *testing.T) {
	remove := map[string]func(*rig){
		"fetched": func(r *rig) { require.Len(r.t, r.fetch(r.bob, ""), 1) },
		"acknowledged": func(r *rig) {
			items := r.fetch(r.bob, "&lease=60")
			require.Len(r.t, items, 1)
			require.Equal(r.t, http.StatusOK, r.ack(r.bob, items[0].ID).status)
		},
	}
	for name, remove := range remove {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				carol := identity(t, 3)
				r.mustStore(r.alice, r.bob.Public(), "x", "x")
				require.Len(t, r.pending(r.bob), 1)
				time.Sleep(time.Hour)
				r.mustStore(r.alice, r.bob.Public(), "x")
				require.Len(t, r.pending(r.bob), 1)
				remove(r)
				r.mustStore(r.alice, r.bob.Public(), "x")
				require.Empty(t, r.pending(r.bob))
				r.mustStore(carol, r.bob.Public(), "x")
				r.mustStore(r.alice, carol.Public(), "x")
				require.Len(t, r.pending(r.bob), 1, "another sender")
				require.Len(t, r.pending(carol), 1, "another recipient")
				r.restart()
				time.Sleep(10*time.Minute - time.Millisecond)
				r.mustStore(r.alice, r.bob.Public(), "x")
				require.Len(t, r.pending(r.bob), 1)
				time.Sleep(time.Millisecond)
				r.mustStore(r.alice, r.bob.Public(), "x")
				require.Len(t, r.pending(r.bob), 2)
			})
		})
	}
}

// TestContacts: 401 comes before 403, which says the same to whoever is not known.
func TestContacts(t *testing.T) {
	for _, strict := range []bool{false, true} {
		bubble(t, func(r *rig) {
			r.contacts, r.Strict = contacts{r.alice.Public(): true, r.bob.Public(): true}, strict
		}, func(t *testing.T, r *rig) {
			carol := identity(t, 3)
			r.mustStore(r.alice, r.bob.Public(), "x")
			r.store(carol, r.bob.Public(), "x").requireRefused(t, http.StatusForbidden)
			bad := strings.Replace(storeBody(carol, r.bob.Public(), `"x"`), `"x"`, `"y"`, 1)
			r.do("POST", "/relay/store", bad).requireRefused(t, http.StatusUnauthorized)
			if strict {
				r.store(r.alice, carol.Public(), "x").requireRefused(t, http.StatusForbidden)
			} else {
				r.mustStore(r.alice, carol.Public(), "x")
			}
			q := query(carol, time.Now())
			for _, path := range []string{"/relay/fetch", "/relay/stream"} {
				r.do("GET", path+q, "").requireRefused(t, http.StatusForbidden)
				r.do("GET", path+strings.Replace(q, "signature=", "signature=00", 1)[:len(q)], "").requireRefused(t, http.StatusUnauthorized)
			}
			r.ack(carol).requireRefused(t, http.StatusForbidden)
			assert.Len(t, r.fetch(r.bob, ""), 1)
		})
	}
	bubble(t, func(r *rig) { r.contacts = nil }, func(t *testing.T, r *rig) {
		r.store(r.alice, r.bob.Public(), "x").requireRefused(t, http.StatusForbidden, "nobody is known by default")
	})
	bubble(t, func(r *rig) { r.contacts = contacts{} }, func(t *testing.T, r *rig) {
		r.store(identity(t, 9), r.bob.Public(), "x").requireRefused(t, http.StatusForbidden)
		r.contacts.(contacts)[crypto.PublicKey{}] = true // errors
		r.store(r.alice, r.bob.Public(), "x").requireRefused(t, http.StatusServiceUnavailable)
		assert.NotContains(t, r.log.String(), r.alice.String())
		assert.Contains(t, r.log.String(), errTest.Error())
	})
}

// contacts with a zero key fail.
type contacts map[crypto.PublicKey]bool

func (c contacts) Known(_ context.Context, k crypto.PublicKey) (bool, error) {
	if c[crypto.PublicKey{}] {
		return false, errTest
	}
	return c[k], nil
}

// TestWeakKeys: a signature that a lax verifier takes for a key of small order is
// refused, as sender and as reader, and so is one whose S was not reduced.
func TestWeakKeys(t *testing.T) {
	var cases []struct{ Name, Public string }
	readVectors(t, "ed25519_edge.json", &cases)
	bubble(t, nil, func(t *testing.T, r *rig) {
		weak := 0
		for _, c := range cases {
			if !strings.HasPrefix(c.Name, "small order") && !strings.HasPrefix(c.Name, "non-canonical key") {
				continue
			}
			weak++
			for _, sig := range []string{
				strings.Repeat("0", 128), c.Public + strings.Repeat("0", 64), "01" + strings.Repeat("0", 126),
			} {
				body := fmt.Sprintf(`{"recipient":"%s","blob":"x","signature":"%s","senderPubkey":"%s"}`, r.bob, sig, c.Public)
				r.do("POST", "/relay/store", body).requireRefused(t, http.StatusUnauthorized, c.Name)
				q := fmt.Sprintf("?pubkey=%s&timestamp=%d&signature=%s", c.Public, time.Now().UnixMilli(), sig)
				r.do("GET", "/relay/fetch"+q, "").requireRefused(t, http.StatusUnauthorized, c.Name)
			}
		}
		assert.GreaterOrEqual(t, weak, 14)

		order, _ := new(big.Int).SetString("7237005577332262213973186563042994240857116359379907606001950938285454250989", 10)
		sig := r.alice.Sign([]byte(`{"recipient":"` + r.bob.String() + `","blob":"x"}`))
		for name, s := range map[string]func(s *big.Int){
			"S+L": func(s *big.Int) { s.Add(s, order) }, "S=L": func(s *big.Int) { s.Set(order) },
			"S=0": func(s *big.Int) { s.SetInt64(0) }, "high bits": func(s *big.Int) { s.SetBit(s, 255, 1) },
		} {
			forged := sig
			n := new(big.Int).SetBytes(reversed(sig[32:]))
			s(n)
			copy(forged[32:], reversed(n.FillBytes(make([]byte, 32))))
			body := strings.Replace(storeBody(r.alice, r.bob.Public(), `"x"`), hex.EncodeToString(sig[:]), hex.EncodeToString(forged[:]), 1)
			r.do("POST", "/relay/store", body).requireRefused(t, http.StatusUnauthorized, name)
		}
		assert.Empty(t, r.pending(r.bob))
	})
}

func reversed(b []byte) []byte {
	r := bytes.Clone(b)
	for i := range r {
		r[i] = b[len(b)-1-i]
	}
	return r
}

// A gatedStore has puts wait at a gate.
type gatedStore struct {
	inbox.Store
	gate chan struct{}
}

func (s *gatedStore) Put(ctx context.Context, e *inbox.Entry, q inbox.Quota, done func(inbox.Result)) {
	s.gate <- struct{}{}
	s.Store.Put(ctx, e, q, done)
}

// TestRepeatWhileRemoved: a repeat that is on its way to the store while the blob is
// fetched is no second one either.
func TestRepeatWhileRemoved(t *testing.T) {
	gated := new(gatedStore)
	bubble(t, func(r *rig) {
		gated.Store, r.server.Inbox = r.server.Inbox, gated
		gated.gate = make(chan struct{}, 1)
	}, func(t *testing.T, r *rig) {
		r.mustStore(r.alice, r.bob.Public(), "x") // fills the gate
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.mustStore(r.alice, r.bob.Public(), "x")
		}()
		synctest.Wait()
		items := r.fetch(r.bob, "")
		assert.Len(t, items, 1)
		synctest.Wait()
		<-gated.gate
		<-done
		synctest.Wait()
		assert.Empty(t, r.pending(r.bob))
	})
}
