// Package inboxtest holds implementations of [inbox.Store] and [inbox.State] to
// their contracts. It is for their tests, and needs nothing but this module and
// the standard library:
//
//	func TestStore(t *testing.T) {
//		inboxtest.TestStore(t, func(t *testing.T) inbox.Store { return mystore.New() }, nil)
//	}
//
// It tests what every implementation promises. What only one promises (a crash
// that loses nothing, a bound on memory) is for tests of its own.
package inboxtest

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sotto-relay/sotto/inbox"
)

// Options say what the implementation under test needs or can do. A nil pointer
// means that all are zero.
type Options struct {
	// Clock is the time that all stores which open returns go by. Nil means the
	// standard library's: each case then runs in a testing/synctest bubble of
	// its own, open is called within it, and what the store starts must have
	// ended when its Close returns. A store that cannot run in a bubble, since
	// it uses the network, needs a Clock.
	Clock Clock

	// Reopen closes a store and opens it again on the same data. Nil means that
	// nothing outlives Close. Only TestStore uses it.
	Reopen func(t *testing.T, s inbox.Store) inbox.Store

	// ReopenState is the same for TestState.
	ReopenState func(t *testing.T, s inbox.State) inbox.State

	// Seed makes the random cases repeat a run, whose seed they log. Zero means
	// a new seed.
	Seed uint64
}

// A Clock is a time that the suite moves. Its methods may be called
// concurrently.
type Clock interface {
	Now() time.Time
	Advance(d time.Duration) // d > 0
}

// bubbleClock is the clock of a testing/synctest bubble.
type bubbleClock struct{}

func (bubbleClock) Now() time.Time          { return time.Now() }
func (bubbleClock) Advance(d time.Duration) { time.Sleep(d) }

// inBubble runs a case with the clock of the options, or else in a bubble.
func (o *Options) inBubble(t *testing.T, name string, run func(*testing.T, Clock)) {
	t.Run(name, func(t *testing.T) {
		if o.Clock != nil {
			run(t, o.Clock)
			return
		}
		synctest.Test(t, func(t *testing.T) { run(t, bubbleClock{}) })
	})
}

func (o *Options) rand(t *testing.T) *rand.Rand {
	seed := o.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("Options.Seed to repeat this run: %#x", seed)
	return rand.New(rand.NewPCG(seed, seed))
}

// TestStore tests a store. open returns a new and empty one, whose own bound on
// bytes is not below 64 MiB; TestStore closes it.
func TestStore(t *testing.T, open func(*testing.T) inbox.Store, o *Options) {
	if o == nil {
		o = new(Options)
	}
	for _, c := range storeCases {
		o.inBubble(t, c.name, func(t *testing.T, clock Clock) {
			r := &rig{T: t, clock: clock, s: open(t), o: o}
			defer func() { r.check(r.s.Close()) }()
			c.run(r)
		})
	}
}

// TestState tests a state store. open returns a new and empty one, whose own
// bound on bytes is not below 64 MiB; TestState closes it.
func TestState(t *testing.T, open func(*testing.T) inbox.State, o *Options) {
	if o == nil {
		o = new(Options)
	}
	for _, c := range stateCases {
		o.inBubble(t, c.name, func(t *testing.T, _ Clock) {
			r := &stateRig{T: t, s: open(t), o: o}
			defer func() { r.check(r.s.Close()) }()
			c.run(r)
		})
	}
}
