package deadline

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestDeadline moves a deadline while somebody waits for it.
func TestDeadline(t *testing.T) {
	for name, test := range map[string]struct {
		moves []time.Duration // from the start, one a second; 0 is none
		want  time.Duration
	}{
		"once":         {[]time.Duration{3 * time.Second}, 3 * time.Second},
		"passed":       {[]time.Duration{-time.Hour}, 0},
		"later":        {[]time.Duration{3 * time.Second, 10 * time.Second}, 10 * time.Second},
		"sooner":       {[]time.Duration{time.Hour, 3 * time.Second}, 3 * time.Second},
		"none between": {[]time.Duration{3 * time.Second, 0, 0, 0, 5 * time.Second}, 5 * time.Second},
		"now":          {[]time.Duration{time.Hour, time.Second}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				c, d, begin := sync.NewCond(&mu), new(Deadline), time.Now()
				go func() {
					for i, move := range test.moves {
						if i > 0 {
							time.Sleep(time.Second)
						}
						mu.Lock()
						if move == 0 {
							d.Set(time.Time{}, c)
						} else {
							d.Set(begin.Add(move), c)
						}
						mu.Unlock()
					}
				}()
				mu.Lock()
				for !d.Passed() {
					c.Wait()
				}
				mu.Unlock()
				assert.Equal(t, test.want, time.Since(begin))
			})
		})
	}
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		c, d := sync.NewCond(&mu), new(Deadline)
		mu.Lock()
		d.Set(time.Now().Add(time.Second), c)
		d.Stop()
		mu.Unlock()
		time.Sleep(time.Minute)
		assert.False(t, d.Passed())
	})
}
