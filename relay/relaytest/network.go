package relaytest

import (
	"context"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sotto-relay/sotto/transport"
)

// Faults are what is wrong with one direction of a [Network]. The zero value is
// a network without faults.
type Faults struct {
	// Delay is how much later everything arrives, and Jitter up to how much more.
	// The order stays as it was.
	Delay, Jitter time.Duration

	// Stall holds everything back. Whoever sends can go on until the buffers on
	// the way are full: some tens of messages or some hundred KiB.
	Stall bool

	// BlackHole takes everything, the end of the connection included, and has it
	// never arrive.
	BlackHole bool

	// Cut and Corrupt are chances, from 0 to 1, for each message (each read of up
	// to 32 KiB in byte media): that the connection breaks instead of delivering
	// it, and that one bit of it is flipped.
	Cut, Corrupt float64

	// Segment delivers a byte stream in writes of so many bytes at most: 1 for one
	// byte at a time. Zero: as it comes. It means nothing for messages.
	Segment int
}

// A Step is a part of a script: for so long the network has these faults.
type Step struct {
	For     time.Duration
	Out, In Faults // see Network.Set
	Cut     bool   // every connection breaks at the beginning of the step
}

// A Network is what lies between the two ends of connections. It has one state
// for all of its connections; ends that are to suffer differently have a Network
// each. Its methods may be called concurrently.
//
// With one seed, and connections opened in the same order, each direction of
// each connection has the same luck with the same messages. How goroutines and
// timers interleave is not the seed's to say, except in a synctest bubble, as far
// as the order there is defined.
type Network struct {
	seed uint64

	mu      sync.Mutex
	faults  [2]Faults     // out, in
	changed chan struct{} // closed when faults change
	links   map[*link]struct{}
	opened  uint64
	closed  bool
	wg      sync.WaitGroup
}

// NewNetwork returns a Network without faults, which ends with the test: its
// connections are cut then. A seed of zero has one chosen; the seed is logged, so
// that what failed can be run again.
func NewNetwork(t testing.TB, seed uint64) *Network {
	t.Helper()
	if seed == 0 {
		seed = rand.Uint64() | 1
	}
	t.Logf("relaytest: the network's seed is %#x", seed)
	n := &Network{seed: seed, changed: make(chan struct{}), links: make(map[*link]struct{})}
	t.Cleanup(n.close)
	return n
}

// Set changes the faults. out is the direction from the end that the Network
// returned (Conn, Stream, Dialer, …) to the one it was given, in the other.
// Messages that are on their way are concerned too, but for their delay.
func (n *Network) Set(out, in Faults) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = [2]Faults{out, in}
	close(n.changed)
	n.changed = make(chan struct{})
}

// Cut breaks every connection that there is: what is on the way is lost, and both
// ends find the connection ended without a code.
func (n *Network) Cut() {
	for _, l := range n.all() {
		l.cut()
	}
}

// Play plays a script, or what of it fits before ctx ends, and leaves the network
// without faults. It blocks meanwhile. A step with a black hole ends with a cut: a
// medium that promises order and no loss keeps that until the connection ends.
func (n *Network) Play(ctx context.Context, script []Step) {
	defer n.Set(Faults{}, Faults{})
	for _, s := range script {
		if ctx.Err() != nil {
			return
		}
		n.Set(s.Out, s.In)
		if s.Cut {
			n.Cut()
		}
		select {
		case <-time.After(s.For):
		case <-ctx.Done():
		}
		if s.Out.BlackHole || s.In.BlackHole {
			n.Cut()
		}
	}
}

// Random returns a script of so many steps of at most so long each, with faults of
// every kind but Corrupt, which only a peer with its own checks survives. One seed
// makes one script.
func (n *Network) Random(steps int, longest time.Duration) []Step {
	r := rand.New(rand.NewPCG(n.seed, 0))
	faults := func() (f Faults) {
		switch r.IntN(6) { // one of them: none
		case 0:
			f.Delay = time.Duration(r.Int64N(int64(longest)/4 + 1))
			f.Jitter = longest / 8
		case 1:
			f.Stall = true
		case 2:
			f.BlackHole = true
		case 3:
			f.Cut = 0.05
		case 4:
			f.Segment = 1 + r.IntN(100)
		}
		return f
	}
	script := make([]Step, steps)
	for i := range script {
		script[i] = Step{
			For: time.Duration(1 + r.Int64N(int64(longest))),
			Out: faults(), In: faults(),
			Cut: r.IntN(8) == 0,
		}
	}
	return script
}

// Conn puts the network before c, which it owns from then on. The Conn returned
// is a [transport.TryWriter] and a [transport.Batcher] whatever c is.
func (n *Network) Conn(c transport.Conn) transport.Conn {
	near, far := newMessageEnds(c)
	n.connect(far, &messageSide{c})
	return near
}

// Dialer returns a Dialer whose connections go through the network.
func (n *Network) Dialer(dial transport.Dialer) transport.Dialer {
	return func(ctx context.Context) (transport.Conn, error) {
		c, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		return n.Conn(c), nil
	}
}

// Stream puts the network before c, which it owns from then on.
func (n *Network) Stream(c net.Conn) net.Conn {
	near, far := newStreamEnds(c)
	n.connect(far, &streamSide{conn: c})
	return near
}

// Dial returns a dialling function, as net.Dialer.DialContext is one, whose
// connections go through the network.
func (n *Network) Dial(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return n.Stream(c), nil
	}
}

// Listen returns a listener whose connections go through the network: there, out
// is what the server sends.
func (n *Network) Listen(l net.Listener) net.Listener { return &listener{l, n} }

type listener struct {
	net.Listener
	network *Network
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.network.Stream(c), nil
}

// connect starts what carries bytes or messages between two sides.
func (n *Network) connect(near, far side) {
	l := &link{net: n, sides: [2]side{near, far}, broken: make(chan struct{})}
	if !n.start(l) {
		l.cut()
	}
}

// start starts the goroutines of a link, unless the network is closed.
func (n *Network) start(l *link) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.links[l] = struct{}{}
	n.opened++
	for dir, to := range []side{l.sides[1], l.sides[0]} {
		w := &way{
			link: l, dir: dir, from: l.sides[dir], to: to,
			luck:   rand.New(rand.NewPCG(n.seed, 4*n.opened+uint64(dir))),
			jitter: rand.New(rand.NewPCG(n.seed, 4*n.opened+2+uint64(dir))),
			queue:  make(chan piece, queued), done: make(chan struct{}),
		}
		l.loops.Go(w.take)
		l.loops.Go(w.give)
	}
	n.wg.Go(func() {
		l.loops.Wait()
		l.close()
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.links, l)
	})
	return true
}

// all returns the links that there are.
func (n *Network) all() []*link {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.links))
}

// state returns the faults of a direction and what tells that they have changed.
func (n *Network) state(dir int) (Faults, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.faults[dir], n.changed
}

func (n *Network) close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.Cut()
	n.wg.Wait()
}
