package relay

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A rolling restart under load: relays on one inbox are drained one after the
// other, while clients go on to the next. What was accepted for storage arrives,
// once and in order.
func TestRollingRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const senders, restarts = 5, 10
		store := memory()
		var mu sync.Mutex
		var current *bench
		start := func() *bench {
			b := newBench(t, &Server{Inbox: store, Limits: Limits{OutboxMessages: 8, TakeoverBurst: 1000}}, words{})
			mu.Lock()
			defer mu.Unlock()
			current = b
			return b
		}
		dial := func() peer {
			mu.Lock()
			defer mu.Unlock()
			client, server := pipe.Options{Messages: 4}.New()
			current.Speak(current.d).HandleConn(server)
			return peer{t, client}
		}
		b := start()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var wg sync.WaitGroup

		stored := make([]int, senders) // by each sender, the number of its last message that was
		for i := range senders {
			stored[i] = -1
			wg.Go(func() {
				next := 0
				for ctx.Err() == nil {
					time.Sleep(time.Millisecond)
					p := dial()
					write := func(format string, a ...any) bool {
						_, err := p.Write(transport.Text, [][]byte{fmt.Appendf(nil, format, a...)})
						return err == nil
					}
					if !write("claim s%d", i) {
						continue
					}
					for ok := true; ok && ctx.Err() == nil; {
						// Absent at first; later there at times.
						ok = write("send bob %d", next)
						next++
						time.Sleep(time.Millisecond)
						_ = p.SetReadDeadline(time.Now().Add(time.Microsecond))
						for {
							_, msg, err := p.Read()
							if err != nil {
								break
							}
							if string(msg) == "stored" {
								stored[i]++
							}
						}
					}
					_ = p.Close(1000, "")
				}
			})
		}
		var got []string
		wg.Go(func() { // bob is there now and then, and reads slowly
			for ctx.Err() == nil {
				time.Sleep(30 * time.Millisecond)
				p := dial()
				if _, err := p.Write(transport.Text, [][]byte{[]byte("claim bob")}); err != nil {
					continue
				}
				for left := time.Now().Add(50 * time.Millisecond); ; time.Sleep(time.Millisecond) {
					if time.Now().After(left) {
						_, _ = p.Write(transport.Text, [][]byte{[]byte("quit")})
						left = left.Add(time.Hour)
					}
					_, msg, err := p.Read()
					if err != nil {
						break
					}
					got = append(got, string(msg))
				}
			}
		})

		for range restarts {
			time.Sleep(100 * time.Millisecond)
			drain, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			_ = b.Drain(drain)
			cancel()
			require.NoError(t, b.Close())
			b.balance()
			b = start()
		}
		stop()
		time.Sleep(time.Minute)
		wg.Wait()
		last := b.dial(0)
		last.say("claim bob")
		for {
			require.NoError(t, last.SetReadDeadline(time.Now().Add(time.Second)))
			_, msg, err := last.Read()
			if err != nil {
				break
			}
			got = append(got, string(msg))
		}
		synctest.Wait()

		seen := make(map[string]int)
		next := make(map[string]int)
		total := 0
		for _, m := range got {
			var from string
			var n int
			if _, err := fmt.Sscanf(m, "s%s %d", &from, &n); err != nil {
				continue
			}
			seen[from]++
			total++
			assert.GreaterOrEqual(t, n, next[from], "order of s%s", from)
			next[from] = n + 1
		}
		for i := range senders {
			assert.GreaterOrEqual(t, seen[fmt.Sprint(i)], stored[i]+1, "of s%d", i)
			assert.Greater(t, stored[i], restarts, "the test stores something")
		}
		t.Logf("%d messages arrived", total)
		n, _, err := store.Totals(t.Context())
		require.NoError(t, err)
		assert.Zero(t, n)
	})
}
