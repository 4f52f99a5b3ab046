package relay

import (
	"bytes"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"time"
)

// A Tier says how loaded the process is.
type Tier int32

// Tiers. A server that is Degraded goes on and says so; one that is Overloaded
// lets no new session claim an address.
const (
	Normal Tier = iota
	Degraded
	Overloaded
)

// String returns "normal", "degraded" or "overloaded".
func (t Tier) String() string { return [...]string{"normal", "degraded", "overloaded"}[t] }

// Load returns the current tier.
func (s *Server) Load() Tier { return Tier(s.tier.Load()) }

// loadInterval is the time between two looks at the load.
const loadInterval = time.Second

// thresholds of a tier: it is entered at up and left below down.
var thresholds = [...]struct {
	memoryUp, memoryDown float64       // part of what the process may use
	delayUp, delayDown   time.Duration // by which a timer comes late
}{
	Degraded:   {0.75, 0.70, 100 * time.Millisecond, 50 * time.Millisecond},
	Overloaded: {0.90, 0.85, time.Second, 500 * time.Millisecond},
}

// nextTier returns the tier that follows from the memory in use (as a part of
// what there is) and from the delay of timers.
func nextTier(now Tier, memory float64, delay time.Duration) Tier {
	for t := Overloaded; t > Normal; t-- {
		th := thresholds[t]
		m, d := th.memoryUp, th.delayUp
		if now >= t {
			m, d = th.memoryDown, th.delayDown
		}
		if memory >= m || delay >= d {
			return t
		}
	}
	return Normal
}

// watchLoad sets the timer that looks at the load. The caller holds s.mu.
func (s *Server) watchLoad() {
	due := time.Now().Add(loadInterval)
	s.monitor = time.AfterFunc(loadInterval, func() {
		if s.add() != nil {
			return
		}
		defer s.wg.Done()
		memory, delay := float64(memoryUsed())/float64(s.memory), time.Since(due)
		s.mu.Lock()
		before := s.delay
		s.delay = delay
		s.mu.Unlock()
		// One late timer is an accident, two in a row are load.
		s.setTier(nextTier(s.Load(), memory, min(before, delay)), memory, delay)
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closing {
			s.watchLoad()
		}
	})
}

func (s *Server) setTier(t Tier, memory float64, delay time.Duration) {
	if old := Tier(s.tier.Swap(int32(t))); old != t {
		s.log.Warn("the load tier has changed", "was", old.String(), "is", t.String(),
			"memory_percent", int(100*memory), "timers_late", delay)
		s.watch(func(tr *Trace) {
			if tr.Load != nil {
				tr.Load(t)
			}
		})
	}
}

// memoryUsed returns the bytes that the Go runtime has of the system.
func memoryUsed() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64() - sample[1].Value.Uint64()
}

// memoryLimit is the soft limit of the Go runtime (GOMEMLIMIT), or that of the
// control group, or the memory of the host.
func memoryLimit() int64 {
	limit := debug.SetMemoryLimit(-1)
	if limit < math.MaxInt64 {
		return limit
	}
	if b, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		if n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64); err == nil && n > 0 {
			return n
		}
	}
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		if _, rest, ok := bytes.Cut(b, []byte("MemTotal:")); ok {
			if f := bytes.Fields(rest); len(f) > 0 {
				if kb, err := strconv.ParseInt(string(f[0]), 10, 64); err == nil && kb > 0 {
					return kb << 10
				}
			}
		}
	}
	return math.MaxInt64
}
