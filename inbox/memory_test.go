package inbox_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/inbox/inboxtest"
)

var (
	ctx   = context.Background()
	alice = inbox.Address{Realm: 1, Name: "alice"}
	bob   = inbox.Address{Realm: 1, Name: "bob"}
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	inboxtest.TestStore(t, func(*testing.T) inbox.Store { return inbox.NewMemory(nil) }, nil)
}

func put(s inbox.Store, e *inbox.Entry, q inbox.Quota) (res inbox.Result) {
	s.Put(ctx, e, q, func(r inbox.Result) { res = r })
	return res
}

func address(i int) inbox.Address {
	return inbox.Address{Name: string(binary.BigEndian.AppendUint64(make([]byte, 24), uint64(i)))}
}

// fillUp puts entries until one is refused, and returns how many fitted.
func fillUp(t *testing.T, s inbox.Store, e inbox.Entry) int {
	for n := 0; ; n++ {
		if err := put(s, &e, inbox.Quota{}).Err; err != nil {
			require.Equal(t, inbox.ErrStorageFull, err)
			return n
		}
	}
}

func TestMemoryFull(t *testing.T) {
	s := inbox.NewMemory(&inbox.MemoryOptions{MaxBytes: 100_000})
	e := inbox.Entry{To: bob, From: alice, Data: make([]byte, 1000)}
	fits := fillUp(t, s, e)
	assert.InDelta(t, 60, fits, 3)
	messages, bytes, err := s.Totals(ctx)
	require.NoError(t, err)
	assert.Equal(t, fits, messages)
	assert.Equal(t, int64(fits)*1000, bytes)

	// What is stored stays readable and deletable, and room is used again.
	other := e
	other.To = alice
	assert.Equal(t, inbox.ErrStorageFull, put(s, &other, inbox.Quota{}).Err)
	var seqs []uint64
	for e, err := range s.Entries(ctx, bob, 0) {
		require.NoError(t, err)
		seqs = append(seqs, e.Seq)
	}
	require.Len(t, seqs, fits)

	// Dropping makes room for one of the same size, and drops nothing for one
	// that would not fit even so.
	drop := inbox.Quota{Messages: fits, DropOldest: true}
	res := put(s, &e, drop)
	require.NoError(t, res.Err)
	require.Len(t, res.Dropped, 1)
	large := e
	large.Data = make([]byte, 10_000)
	res = put(s, &large, drop)
	assert.Equal(t, inbox.ErrStorageFull, res.Err)
	assert.Empty(t, res.Dropped)

	// What found no room does not count against its sender.
	total := inbox.Quota{SenderTotal: 1}
	assert.Equal(t, inbox.ErrStorageFull, put(s, &large, total).Err)
	res = put(s, &e, inbox.Quota{Messages: fits, SenderTotal: 1, DropOldest: true})
	assert.NoError(t, res.Err)
	assert.Equal(t, inbox.ErrSenderQuota, put(s, &large, total).Err)

	for _, seq := range append(seqs[2:], res.Seq-1, res.Seq, seqs[fits-1]+1) {
		_, err := s.Delete(ctx, bob, seq)
		require.NoError(t, err)
	}
	e.Expires = time.Now().Add(time.Hour)
	assert.Equal(t, fits, fillUp(t, s, e), "all room was given back")

	// Empty entries are not free.
	assert.Less(t, fillUp(t, inbox.NewMemory(&inbox.MemoryOptions{MaxBytes: 100_000}), inbox.Entry{}), 1000)
}

func heapInUse() int64 {
	var ms runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&ms)
	return int64(ms.HeapAlloc)
}

// TestMemoryMaxBytes holds what the options promise: what a full store takes is
// near MaxBytes, and an emptied one takes nothing.
func TestMemoryMaxBytes(t *testing.T) {
	const limit = 4 << 20
	for _, c := range []struct {
		name                string
		each, size, senders int // entries a recipient, bytes of Data
		minTaken, maxTaken  float64
	}{
		{"empty entries", 10, 0, 7, 0.3, 1},
		{"an entry each", 1, 100, 7, 0.4, 1.2},
		{"an entry each, and of each", 1, 100, 1_000_000, 0.4, 1.2},
		{"few recipients", 5_000, 100, 7, 0.3, 1},
		{"large", 10, 4096, 7, 0.9, 1.1},
	} {
		before := heapInUse()
		s := inbox.NewMemory(&inbox.MemoryOptions{MaxBytes: limit})
		n := 0
		for ; ; n++ {
			e := &inbox.Entry{To: address(n / c.each), From: address(-n % c.senders), Data: make([]byte, c.size), Expires: time.Now().Add(time.Hour)}
			binary.BigEndian.PutUint64(e.ID[:], uint64(n+1))
			if put(s, e, inbox.Quota{SenderTotal: 1_000_000}).Err != nil {
				break
			}
		}
		taken := float64(heapInUse()-before) / limit
		t.Logf("%s: %d entries take %.2f of MaxBytes", c.name, n, taken)
		assert.GreaterOrEqual(t, taken, c.minTaken, c.name)
		assert.LessOrEqual(t, taken, c.maxTaken, c.name)
		for i := range n/c.each + 1 {
			for e, err := range s.Entries(ctx, address(i), 0) {
				require.NoError(t, err)
				if i == 0 && e.Seq == 1 {
					continue // one stays
				}
				_, err := s.Delete(ctx, e.To, e.Seq)
				require.NoError(t, err)
			}
		}
		assert.Less(t, heapInUse()-before, int64(256<<10), c.name)
		runtime.KeepAlive(s)
	}
}

// TestMemoryTurnover puts and deletes many entries behind one that stays.
func TestMemoryTurnover(t *testing.T) {
	const n = 100_000
	s := inbox.NewMemory(nil)
	e := &inbox.Entry{To: bob, From: alice, Data: []byte("data")}
	before := heapInUse()
	require.NoError(t, put(s, e, inbox.Quota{}).Err) // stays at the head
	for i := range n {
		binary.BigEndian.PutUint64(e.ID[:], uint64(i+1))
		e.From = address(i)
		seq := put(s, e, inbox.Quota{}).Seq
		if deleted, _ := s.Delete(ctx, bob, seq); deleted != 1 {
			t.Fatal("not deleted")
		}
	}
	assert.Less(t, heapInUse()-before, int64(64<<10))
	messages, bytes, err := s.Totals(ctx)
	require.NoError(t, err)
	assert.Equal(t, 1, messages)
	assert.Equal(t, int64(4), bytes)
}

// TestMemoryCopiesNames puts names that are parts of something large.
func TestMemoryCopiesNames(t *testing.T) {
	s := inbox.NewMemory(nil)
	before := heapInUse()
	for i := range 100 {
		large := strings.Repeat("x", 1<<20) + fmt.Sprint(i)
		name := large[1<<20:]
		require.NoError(t, put(s, &inbox.Entry{To: inbox.Address{Name: name}, From: inbox.Address{Name: name}}, inbox.Quota{}).Err)
	}
	assert.Less(t, heapInUse()-before, int64(1<<20))
	runtime.KeepAlive(s)
}

func TestMemoryAllocs(t *testing.T) {
	s := inbox.NewMemory(nil)
	e := &inbox.Entry{To: bob, From: alice, Data: make([]byte, 128)}
	require.NoError(t, put(s, e, inbox.Quota{}).Err)
	var seq uint64
	done := func(r inbox.Result) { seq = r.Seq }
	q := inbox.Quota{Messages: 10_000, Bytes: 64 << 20, PerSender: 1_000}
	e.Expires = time.Now().Add(time.Hour)
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		e.ID[0]++
		s.Put(ctx, e, q, done)
		s.Delete(ctx, bob, seq)
	}), 2.0, "the entry and its Data")
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		for range s.Entries(ctx, bob, 0) {
		}
	}), 3.0, "the iterator and an entry")
}

func BenchmarkMemory(b *testing.B) {
	q := inbox.Quota{Messages: 1 << 40, Bytes: 1 << 50, PerSender: 1 << 40}
	entry := func(i int) *inbox.Entry {
		e := &inbox.Entry{To: address(i), From: alice, Data: make([]byte, 128), Expires: time.Now().Add(time.Hour)}
		binary.BigEndian.PutUint64(e.ID[:], uint64(i+1))
		return e
	}
	open := func() *inbox.Memory { return inbox.NewMemory(&inbox.MemoryOptions{MaxBytes: 1 << 40}) }

	b.Run("put", func(b *testing.B) {
		s, e, done := open(), entry(0), func(inbox.Result) {}
		b.ReportAllocs()
		for i := range b.N {
			if i%500_000 == 0 {
				s = open() // or it would take all memory
			}
			if i%10_000 == 0 {
				e.To = address(i)
			}
			binary.BigEndian.PutUint64(e.ID[:], uint64(i+1))
			s.Put(ctx, e, q, done)
		}
	})
	b.Run("put and delete", func(b *testing.B) {
		s, e := open(), entry(0)
		var seq uint64
		done := func(r inbox.Result) { seq = r.Seq }
		b.ReportAllocs()
		for i := range b.N {
			binary.BigEndian.PutUint64(e.ID[:], uint64(i+1))
			s.Put(ctx, e, q, done)
			s.Delete(ctx, e.To, seq)
		}
	})
	b.Run("drop oldest of 500", func(b *testing.B) {
		s, e, done := open(), entry(0), func(inbox.Result) {}
		b.ReportAllocs()
		for i := range b.N {
			binary.BigEndian.PutUint64(e.ID[:], uint64(i+1))
			s.Put(ctx, e, inbox.Quota{Messages: 500, DropOldest: true}, done)
		}
	})
	b.Run("refuse at 10000", func(b *testing.B) {
		s, e, done := open(), entry(0), func(inbox.Result) {}
		e.ID = inbox.ID{}
		b.ReportAllocs()
		for range b.N {
			s.Put(ctx, e, inbox.Quota{Messages: 10_000}, done)
		}
	})
	b.Run("iterate 10000", func(b *testing.B) {
		s, e := open(), entry(0)
		e.ID = inbox.ID{}
		for range 10_000 {
			put(s, e, q)
		}
		b.ReportAllocs()
		for b.Loop() {
			for range s.Entries(ctx, e.To, 0) {
			}
		}
	})
	b.Run("put and delete by 64", func(b *testing.B) {
		s := open()
		b.SetParallelism(max(1, 64/runtime.GOMAXPROCS(0)))
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			e := entry(0)
			var seq uint64
			done := func(r inbox.Result) { seq = r.Seq }
			for i := 0; pb.Next(); i++ {
				e.To = address(i % 1000)
				s.Put(ctx, e, q, done)
				s.Delete(ctx, e.To, seq)
			}
		})
	})
}
