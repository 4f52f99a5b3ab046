package inbox_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/inbox/inboxtest"
)

func TestMemoryState(t *testing.T) {
	inboxtest.TestState(t, func(*testing.T) inbox.State { return inbox.NewMemoryState(nil) }, nil)
}

func TestMemoryStateFull(t *testing.T) {
	s := inbox.NewMemoryState(&inbox.MemoryOptions{MaxBytes: 100_000})
	fill := func() (n int) {
		for ; ; n++ {
			if err := s.Put(ctx, "b", fmt.Sprint(n), make([]byte, 1000)); err != nil {
				require.Equal(t, inbox.ErrStorageFull, err)
				return n
			}
		}
	}
	fits := fill()
	assert.InDelta(t, 88, fits, 5)
	assert.NoError(t, s.Put(ctx, "b", "0", make([]byte, 1000)), "a value of the same size in place of one")
	assert.Equal(t, inbox.ErrStorageFull, s.Put(ctx, "b", "0", make([]byte, 2000)))
	v, ok, err := s.Get(ctx, "b", "0")
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Len(t, v, 1000, "refused, so unchanged")
	assert.Equal(t, inbox.ErrStorageFull, s.Put(ctx, "other", "k", make([]byte, 2000)))
	for range s.Range(ctx, "other", "") {
		t.Fatal("refused, so not there")
	}
	for i := range fits {
		require.NoError(t, s.Delete(ctx, "b", fmt.Sprint(i)))
	}
	assert.Equal(t, fits, fill(), "all room was given back")
}

// TestMemoryStateMaxBytes holds that items take about what they count as, also
// after most of them have gone.
func TestMemoryStateMaxBytes(t *testing.T) {
	const limit = 4 << 20
	before := heapInUse()
	s := inbox.NewMemoryState(&inbox.MemoryOptions{MaxBytes: limit})
	n := 0
	for ; s.Put(ctx, "b", fmt.Sprintf("%032x", n*7919), make([]byte, 32)) == nil; n++ {
	}
	taken := float64(heapInUse()-before) / limit
	t.Logf("%d items take %.2f of MaxBytes", n, taken)
	assert.LessOrEqual(t, taken, 1.0)
	for i := range n {
		if i%20 != 0 {
			require.NoError(t, s.Delete(ctx, "b", fmt.Sprintf("%032x", i*7919)))
		}
	}
	taken = float64(heapInUse()-before) / limit
	t.Logf("a twentieth of them takes %.2f", taken)
	assert.LessOrEqual(t, taken, 0.1)
	for i := range n {
		require.NoError(t, s.Delete(ctx, "b", fmt.Sprintf("%032x", i*7919)))
	}
	assert.Less(t, heapInUse()-before, int64(256<<10))
	assert.NoError(t, s.Close())
}

func BenchmarkMemoryState(b *testing.B) {
	s := inbox.NewMemoryState(nil)
	keys := make([]string, 1_000_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("%016x", uint64(i)*0x9e3779b97f4a7c15)
	}
	value := make([]byte, 32)
	b.Run("put", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			_ = s.Put(ctx, "b", keys[i%len(keys)], value)
		}
	})
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			_, _, _ = s.Get(ctx, "b", keys[i%len(keys)])
		}
	})
}
