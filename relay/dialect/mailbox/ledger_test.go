package mailbox

import (
	"context"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
)

// TestLedger compares with a map that is never cleaned, through restarts.
func TestLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rnd := rand.New(rand.NewPCG(seed, 0))
		state := inbox.NewMemoryState(nil)
		l := newLedger(state, "b", slog.New(slog.DiscardHandler))
		until := make(map[ledgerKey]time.Time)
		some := func() ledgerKey {
			return ledgerKey{crypto.PublicKey{byte(rnd.IntN(3))}, relay.ID{byte(rnd.IntN(20))}}
		}
		for range 5000 {
			time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
			k := some()
			switch rnd.IntN(4) {
			case 0:
				at := time.Now().Add(time.Duration(rnd.IntN(50)) * time.Millisecond)
				ids := []relay.ID{k.id}
				if more := some(); more.id != k.id {
					ids = append(ids, more.id)
				}
				require.NoError(t, l.add(t.Context(), k.owner, at, ids...))
				for _, id := range ids {
					if k := (ledgerKey{k.owner, id}); at.After(until[k]) {
						until[k] = at
					}
				}
			case 1:
				if rnd.IntN(50) == 0 {
					l = newLedger(state, "b", l.log)
				}
			default:
				has, _, err := l.has(t.Context(), k.owner, k.id)
				require.NoError(t, err)
				require.Equal(t, !time.Now().After(until[k]), has)
			}
		}
		time.Sleep(time.Second)
		for range 5000 { // deletes a few items each
			_, count, err := l.has(t.Context(), crypto.PublicKey{}, relay.ID{})
			require.NoError(t, err)
			require.Zero(t, count)
		}
		assert.Empty(t, l.until)
		assert.Empty(t, l.owners)
		assert.Empty(t, l.records)
		for item := range state.Range(t.Context(), "b", "") {
			assert.Fail(t, "left over", "%x", item.Key)
		}
	})
}

func TestLedgerIsBounded(t *testing.T) {
	l := newLedger(inbox.NewMemoryState(nil), "b", slog.New(slog.DiscardHandler))
	l.most, l.each = 4, 2
	add := func(owner, id byte) error {
		return l.add(t.Context(), crypto.PublicKey{owner}, time.Now().Add(time.Hour), relay.ID{id})
	}
	for owner := range byte(2) {
		require.NoError(t, add(owner, 1))
		require.NoError(t, add(owner, 2))
		require.Equal(t, errLedgerFull, add(owner, 3), "of one owner")
	}
	assert.Equal(t, errLedgerFull, add(2, 1), "in all")
}

// A brokenState cannot be read.
type brokenState struct{ relay.State }

func (brokenState) Range(context.Context, string, string) iter.Seq2[inbox.Item, error] {
	return func(yield func(inbox.Item, error) bool) { yield(inbox.Item{}, errTest) }
}

// TestBrokenState: what cannot be known to be new is not answered, and why is logged.
func TestBrokenState(t *testing.T) {
	bubble(t, func(r *rig) { r.server.State = brokenState{inbox.NewMemoryState(nil)} }, func(t *testing.T, r *rig) {
		r.store(r.alice, r.bob.Public(), "x").requireRefused(t, http.StatusServiceUnavailable)
		r.do("GET", "/relay/fetch"+query(r.bob, time.Now()), "").requireRefused(t, http.StatusServiceUnavailable)
		assert.Contains(t, r.log.String(), errTest.Error())
	})
}

func FuzzRecord(f *testing.F) {
	r := newRecord(1767225600000, crypto.PublicKey{1}, []relay.ID{{2}, {3}})
	f.Add(r.key, r.value())
	f.Add("", []byte{})
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		r, ok := parseRecord(key, value)
		if !ok {
			return
		}
		require.NotEmpty(t, r.ids)
		require.Equal(t, string(value), string(r.value()))
		require.Equal(t, key, r.key)
	})
}
