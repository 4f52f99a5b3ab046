package striped

import (
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// One has a name at a time.
func TestLock(t *testing.T) {
	var m Mutexes
	var all sync.WaitGroup
	inside := make([]int, 100)
	for name := range inside {
		for range 8 {
			all.Go(func() {
				defer m.Lock(strconv.Itoa(name))()
				inside[name]++ // the race detector would tell, too
				assert.Equal(t, 1, inside[name])
				inside[name]--
			})
		}
	}
	all.Wait()
}

// Others have theirs meanwhile: of a thousand names some share no lock with the
// one that is held.
func TestOthers(t *testing.T) {
	var m Mutexes
	unlock := m.Lock("held")
	var all sync.WaitGroup
	got := make(chan int, 1000)
	for name := range cap(got) {
		all.Go(func() {
			defer m.Lock(strconv.Itoa(name))()
			got <- name
		})
	}
	<-got // or this hangs
	unlock()
	all.Wait()
}
