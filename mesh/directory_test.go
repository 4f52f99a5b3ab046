package mesh

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"bytes"
	"crypto/sha256"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/internal/race"
)

// key is a key that nobody has.
func key(n int) (k crypto.PublicKey) {
	binary.BigEndian.PutUint64(k[:], uint64(n))
	return k
}

func at(n int) string { return fmt.Sprintf("ws://r%d.example", n) }

func TestDirectoryTrust(t *testing.T) {
	now := time.Unix(1e9, 0)
	d := newDirectory(key(0))
	assert.False(t, d.add(key(0), at(0), seeded, key(1), now), "ourselves")
	assert.True(t, d.add(key(1), at(1), suggested, key(9), now))
	assert.False(t, d.add(key(1), at(2), suggested, key(8), now), "somebody else's idea of where it is")
	assert.Equal(t, at(1), d.address(key(1)))
	assert.True(t, d.add(key(1), at(2), told, key(1), now), "its own word")
	assert.True(t, d.add(key(1), at(3), linked, key(1), now))
	assert.False(t, d.add(key(1), at(4), told, key(1), now))
	assert.Equal(t, at(3), d.address(key(1)))
	assert.Equal(t, key(1), *d.at(at(3)))
	assert.Nil(t, d.at(at(2)))
	assert.Empty(t, d.by)
	d.remove(key(1))
	d.remove(key(1))
	assert.Empty(t, d.address(key(1)))
	assert.Empty(t, d.random(5))
}

func TestDirectoryBounds(t *testing.T) {
	if race.Enabled {
		t.Skip("nothing in it is concurrent")
	}
	now := time.Unix(1e9, 0)
	d := newDirectory(key(0))
	d.add(key(1), at(1), seeded, key(1), now.Add(-time.Hour))
	d.add(key(2), at(2), linked, key(2), now.Add(-time.Hour))
	n := 0
	for i := range 20_000 { // by one suggester
		if d.add(key(100+i), at(i), suggested, key(2), now) {
			n++
		}
	}
	assert.Equal(t, suggestedMost, n)
	for i := range 20_000 { // by many
		d.add(key(1_000_000+i), at(i), suggested, key(50+i/100), now.Add(time.Duration(i)))
	}
	assert.LessOrEqual(t, len(d.relays), directoryMost)
	assert.Greater(t, len(d.relays), directoryMost*98/100)
	assert.Len(t, d.keys, len(d.relays))
	assert.Equal(t, at(1), d.address(key(1)))
	assert.Equal(t, at(2), d.address(key(2)))
	assert.Empty(t, d.address(key(1_000_000)), "the oldest has gone")
	assert.NotEmpty(t, d.address(key(1_019_999)))
	assert.Len(t, d.random(listMost), listMost)
	for i, k := range d.keys {
		if d.relays[k].index != i {
			t.Fatal("an entry does not know where it is")
		}
	}
	sum := 0
	for _, n := range d.by {
		sum += n
	}
	assert.Equal(t, len(d.relays)-2, sum)

	d = newDirectory(key(0))
	d.most = 2
	d.add(key(1), at(1), seeded, key(1), now)
	d.add(key(2), at(2), seeded, key(2), now)
	assert.False(t, d.add(key(3), at(3), seeded, key(3), now), "seeds are not evicted")
}

func TestDirectoryKept(t *testing.T) {
	state, ctx := inbox.NewMemoryState(nil), context.Background()
	save := func(d *directory) {
		for k, v := range d.changed() {
			if v == nil {
				require.NoError(t, state.Delete(ctx, relaysBucket, k))
			} else {
				require.NoError(t, state.Put(ctx, relaysBucket, k, v))
			}
		}
	}
	now := time.Unix(1e9, 0)
	d := newDirectory(key(0))
	d.add(key(1), at(1), suggested, key(9), now)
	d.add(key(2), at(2), seeded, key(9), now)
	d.add(key(3), at(3), linked, key(9), now)
	save(d)
	d.remove(key(3))
	save(d)
	assert.Nil(t, d.changed())
	require.NoError(t, state.Put(ctx, relaysBucket, "damaged", []byte{1}))
	again := newDirectory(key(0))
	require.NoError(t, again.load(ctx, state))
	assert.Len(t, again.relays, 2)
	assert.Equal(t, suggested, again.relays[key(1)].trust)
	assert.Equal(t, linked, again.relays[key(2)].trust)
	assert.Equal(t, now, again.relays[key(2)].seen)
	assert.Nil(t, again.changed())
}

func TestOwners(t *testing.T) {
	for range 200 {
		n := rand.IntN(40)
		keys := make([]crypto.PublicKey, n)
		for i := range keys {
			keys[i] = key(rand.Int())
		}
		client := key(rand.Int())
		got := ownersOf(client, keys[:n/2], keys[n/2:])
		hash := func(k crypto.PublicKey) []byte {
			h := sha256.Sum256(append(k[:], client[:]...))
			return h[:]
		}
		slices.SortFunc(keys, func(a, b crypto.PublicKey) int { return -bytes.Compare(hash(a), hash(b)) })
		require.Equal(t, keys[:min(n, 3)], got)
	}
}

func TestLasting(t *testing.T) {
	l, now := newLasting[int, string](3), time.Unix(1e9, 0)
	for i := range 5 {
		l.put(i, fmt.Sprint(i), now.Add(time.Second))
	}
	_, ok := l.get(1, now)
	assert.False(t, ok)
	v, ok := l.get(2, now)
	assert.True(t, ok)
	assert.Equal(t, "2", v)
	l.put(2, "two", now.Add(time.Hour))
	l.sweep(now.Add(time.Second))
	assert.Len(t, l.index, 1)
	v, _ = l.get(2, now.Add(time.Minute))
	assert.Equal(t, "two", v)
	_, ok = l.get(2, now.Add(time.Hour))
	assert.False(t, ok)
	assert.Zero(t, l.order.Len())
}

func TestBackoff(t *testing.T) {
	for failures, most := range []time.Duration{1, 1, 2, 4, 8, 16, 32, 64, 120, 120} {
		for range 100 {
			d := backoff(failures)
			require.LessOrEqual(t, d, most*time.Second)
			require.GreaterOrEqual(t, d, most*time.Second/2)
		}
	}
	require.LessOrEqual(t, backoff(1000), backoffMost)
}

func TestParsePeer(t *testing.T) {
	id, err := crypto.GenerateIdentity()
	require.NoError(t, err)
	p, err := ParsePeer("wss://a.example/x#" + id.String())
	require.NoError(t, err)
	assert.Equal(t, "wss://a.example/x", p.Address)
	assert.Equal(t, id.Public(), *p.Key)
	p, err = ParsePeer("ws://127.0.0.1:80")
	require.NoError(t, err)
	assert.Nil(t, p.Key)
	for _, bad := range []string{"", "a.example", "wss://a.example#", "wss://a.example#" + id.String()[2:], "wss://a.example#" + id.String() + "#",
		"wss://a.example#" + crypto.PublicKey{}.String()} {
		_, err := ParsePeer(bad)
		assert.Error(t, err, bad)
	}
	assert.True(t, Open{}.Admit(id.Public()))
	assert.True(t, Closed{id.Public()}.Admit(id.Public()))
	assert.False(t, Closed{}.Admit(id.Public()))
}

// A fullState has no room, while it is full.
type fullState struct {
	inbox.State
	full atomic.Bool
}

func (s *fullState) Put(ctx context.Context, bucket, key string, value []byte) error {
	if s.full.Load() {
		return inbox.ErrStorageFull
	}
	return s.State.Put(ctx, bucket, key, value)
}

// What cannot be written is written when it can.
func TestSavedLater(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		state := &fullState{State: inbox.NewMemoryState(nil)}
		state.full.Store(true)
		a := w.start("a", "", func(c *Config) { c.State = state })
		b := w.start("b", "a")
		settle()
		bob := a.attach(identity(t, 2))
		settle()
		kept := func(bucket string, key crypto.PublicKey) bool {
			_, ok, err := state.Get(t.Context(), bucket, string(key[:]))
			require.NoError(t, err)
			return ok
		}
		assert.False(t, kept(relaysBucket, b.id.Public()) || kept(attestedBucket, bob.id.Public()))
		state.full.Store(false)
		time.Sleep(2 * tick)
		synctest.Wait()
		assert.True(t, kept(relaysBucket, b.id.Public()))
		assert.True(t, kept(attestedBucket, bob.id.Public()))
	})
}

// A relay that was found at an address, and then not any more, says where it is now.
func TestRelayMoves(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.start("a", ""), w.start("b", "")
		synctest.Wait()
		a.mesh.mu.Lock()
		a.mesh.learn(b.id.Public(), addressFor("b"), linked, b.id.Public(), time.Now())
		a.mesh.mu.Unlock()
		settle()
		at := func() string {
			a.mesh.mu.Lock()
			defer a.mesh.mu.Unlock()
			return a.mesh.dir.address(b.id.Public())
		}
		b.stop()
		b.name = "n"
		b.run("a")
		settle()
		assert.Equal(t, addressFor("b"), at(), "where it was a moment ago")
		b.stop()
		time.Sleep(10 * time.Minute)
		b.run("a")
		settle()
		assert.Equal(t, addressFor("n"), at())
	})
}

// A relay that has the links that it wants asks no more relays for their lists when a
// link comes up: of those that it has it asks now and then.
func TestListsOfFew(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		synctest.Wait()
		asked := func(r *rogue) (n int) {
			synctest.Wait()
			for len(r.in) > 0 {
				f := <-r.in
				info, err := frame.DecodeNodeInfo(f.Payload)
				if f.Type == frame.TypeNodeInfo && err == nil && info.Subtype == frame.NodeInfoRequestServers {
					n++
				}
			}
			return n
		}
		crowd := a.crowd()
		for _, r := range crowd {
			assert.Equal(t, 1, asked(r))
		}
		crowd = append(crowd, a.rogue(identity(t, 190)), a.rogue(identity(t, 191)))
		for _, r := range crowd[linksMost:] {
			assert.Zero(t, asked(r))
		}
		time.Sleep(30 * tick)
		n := 0
		for _, r := range crowd {
			n += asked(r)
		}
		assert.Equal(t, linksMost, n)
	})
}
