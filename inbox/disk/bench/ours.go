package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sotto-relay/sotto/inbox"
)

// fill puts n entries, without waiting for each.
func fill(s inbox.Store, n, recipients int, data []byte, life time.Duration) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 4096)
	for i := range n {
		slots <- struct{}{}
		wg.Add(1)
		e := &inbox.Entry{To: address(i % recipients), From: address(-1 - i%7), Data: data, Stored: time.Now()}
		binary.BigEndian.PutUint64(e.ID[:], uint64(i)+1)
		if life > 0 {
			e.Expires = time.Now().Add(life)
		}
		s.Put(context.Background(), e, quota, func(r inbox.Result) {
			check(r.Err)
			<-slots
			wg.Done()
		})
	}
	wg.Wait()
}

func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// drain reads and deletes the backlog of one recipient, as a relay does, some
// hundred at a time.
func drain(n int) {
	d := tempDir()
	c := openStore(d)
	fill(c.s, n, 1, message(1), 0)
	check(c.db.Close())
	start := time.Now()
	c = openStore(d)
	fmt.Printf("backlog of %d of 1 KiB: opened in %v", n, time.Since(start).Round(time.Millisecond))
	before, peak := heap(), 0.0
	start = time.Now()
	var seqs []uint64
	flush := func() {
		_, err := c.s.Delete(context.Background(), address(0), seqs...)
		check(err)
		seqs = seqs[:0]
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		peak = max(peak, float64(m.HeapAlloc)/(1<<20))
	}
	for e, err := range c.s.Entries(context.Background(), address(0), 1) {
		check(err)
		if seqs = append(seqs, e.Seq); len(seqs) == 500 {
			flush()
		}
	}
	flush()
	took := time.Since(start)
	fmt.Printf(", drained in %v: %.0f a second, %.0f MiB/s, heap %.0f MiB before and at most %.0f\n", took.Round(time.Millisecond),
		float64(n)/took.Seconds(), float64(n)/1024/took.Seconds(), before, peak)
	c.close()
	check(os.RemoveAll(d))
}

// purge measures puts while entries that have expired are purged.
func purge(n int) {
	d := tempDir()
	c := openStore(d)
	before := heap()
	data := message(1)[:128]
	start := time.Now()
	life := time.Minute // until they are all there
	fill(c.s, n, 1000, data, life)
	expired := time.Now().Add(life)
	fmt.Printf("%d entries of 128 bytes of 1000 recipients: stored in %v, heap %.0f MiB", n, time.Since(start).Round(time.Millisecond), heap()-before)
	check(c.db.Close())
	start = time.Now()
	c = openStore(d)
	fmt.Printf(", opened in %v\n", time.Since(start).Round(time.Millisecond))
	quietTimes := times(c, 1<<20, 2*time.Second)
	time.Sleep(time.Until(expired))
	var purged atomic.Int64
	end := make(chan struct{})
	go func() {
		defer close(end)
		for purged.Load() < int64(n) {
			got, err := c.s.Purge(context.Background(), 1000, nil)
			check(err)
			purged.Add(int64(got))
		}
	}()
	start = time.Now()
	busy := times(c, 1<<21, 2*time.Second)
	<-end
	took := time.Since(start)
	fmt.Printf("  put p50 %v p99 %v alone; p50 %v p99 %v while purging; %d purged in %v\n", at(quietTimes, 50), at(quietTimes, 99), at(busy, 50), at(busy, 99),
		purged.Load(), took.Round(time.Millisecond))
	c.close()
	check(os.RemoveAll(d))
}

// times puts for some time as a hundred writers, of whom the first has a number,
// and returns how long each took, sorted.
func times(c store, first int, d time.Duration) (took []time.Duration) {
	data := message(2)
	for start, n := time.Now(), 0; time.Since(start) < d; n++ {
		t := time.Now()
		c.put(first+n%100, n, data)
		took = append(took, time.Since(t))
	}
	slices.Sort(took)
	return took
}

func at(sorted []time.Duration, percent int) time.Duration {
	return sorted[len(sorted)*percent/100].Round(10 * time.Microsecond)
}
