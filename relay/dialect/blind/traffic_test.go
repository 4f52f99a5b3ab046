package blind

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/blind/audit"
)

// TestTraffic: while the key is rotated, on and back, every subscriber gets every
// frame of the others once, in the order of each sender, by whichever name it was
// sent; and the audit file has a line for each of these deliveries, and no other.
func TestTraffic(t *testing.T) {
	const (
		devices = 6 // that all send and subscribe
		frames  = 200
	)
	path := filepath.Join(t.TempDir(), "audit.log")
	file, err := audit.OpenFile(path)
	require.NoError(t, err)
	r := newRig(t, func(r *rig) {
		r.log.Sinks = []audit.Sink{file}
		r.Limits = relay.MaxLimits()
		r.Limits.Dialects = map[string]relay.DialectLimits{"blind": {OutboxMessages: devices * frames, Aliases: 10_000}}
	})
	var names atomic.Int64 // k0, k1, … lead to the devices
	names.Store(1)
	var peers []*peer
	for i := range devices {
		p := r.as(fmt.Sprint("device", i))
		p.say(subscribe("k0"))
		p.say(rotate(p.name, "unused"+p.name)) // the answer comes after the subscription
		p.hear()
		peers = append(peers, p)
	}
	got := make([][]string, devices)
	var wg sync.WaitGroup
	for i, p := range peers {
		wg.Go(func() {
			for n := range frames {
				// The length says which frame it is, also in the log.
				p.say(fmt.Sprintf("k%d %s.%s", rand.Int64N(names.Load()), p.name, strings.Repeat("n", n)))
			}
		})
		wg.Go(func() {
			for range (devices - 1) * frames {
				_, text, _ := strings.Cut(p.hear(), " ")
				got[i] = append(got[i], text)
			}
		})
	}
	var over atomic.Bool
	var moving sync.WaitGroup
	rotator := r.as("rotator")
	moving.Go(func() {
		for at := "k0"; !over.Load(); {
			known := names.Load()
			to := fmt.Sprint("k", rand.Int64N(known+1))
			if to == at {
				continue
			}
			rotator.say(rotate(at, to))
			if rotator.hear() == rotated(at, to) {
				if at = to; to == fmt.Sprint("k", known) {
					names.Add(1)
				}
			}
		}
	})
	wg.Wait()
	over.Store(true)
	moving.Wait()
	require.NoError(t, r.log.Close())

	for i := range peers {
		next := make(map[string]int)
		for _, text := range got[i] {
			from, body, _ := strings.Cut(text, ".")
			require.Equal(t, next[from], len(body), "of %s at %s", from, peers[i].name)
			next[from]++
		}
		assert.Len(t, next, devices-1)
		assert.NotContains(t, next, peers[i].name)
	}
	logged, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.SplitAfter(string(logged), "\n")
	require.Len(t, lines, devices*(devices-1)*frames+1)
	next := make(map[string]int)
	for _, line := range lines[:len(lines)-1] {
		var l struct {
			FromConnID, ToConnID, EntityID string
			Bytes                          int
		}
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		pair := l.FromConnID + ">" + l.ToConnID
		size := len(message(l.EntityID+" "+l.FromConnID+".")) - 1
		n := next[pair]
		// The key as it was sent, maybe with a digit less or more, is not logged.
		require.InDelta(t, n, l.Bytes-size, 2, "%s", line)
		next[pair]++
		require.Regexp(t, `^k\d+$`, l.EntityID)
	}
	assert.Len(t, next, devices*(devices-1))
	for pair, n := range next {
		assert.Equal(t, frames, n, pair)
	}
	r.balance()
}
