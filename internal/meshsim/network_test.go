package meshsim

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/mesh"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
)

// A world is relays, clients and what is between them.
type world struct {
	t       *testing.T
	nodes   []*node
	clients []*client
	traffic [uses]traffic
	running sync.WaitGroup // clients

	mu      sync.Mutex
	rng     *rand.Rand
	at      map[string]*node // that are up, by address
	up      []*node
	lines   map[*line]struct{}
	loss    float64 // of dials, that fail
	letters map[relay.ID]*letter
	posted  uint64 // letters, ever
	doubles int    // arrivals that the recipient's application would not see
}

// A use is what frames between relays are for.
type use int

const (
	finding  use = iota // WHERE, AT
	querying            // QUERY_CLIENT and its answers
	opening             // the handshake of a link, and what is said of relays when it comes up
	carrying            // messages and receipts
	telling             // HERE and the moving of mail
	upkeep              // the rest: pings, and lists of relays now and then
	uses
)

// A traffic is how much there was, without what a medium adds.
type traffic struct{ frames, bytes atomic.Int64 }

func newWorld(t *testing.T, seed uint64) *world {
	return &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), at: make(map[string]*node),
		lines: make(map[*line]struct{}), letters: make(map[relay.ID]*letter),
	}
}

// total returns how much there was of a use.
func (w *world) total(u use) cost {
	t := &w.traffic[u]
	return cost{float64(t.frames.Load()), float64(t.bytes.Load())}
}

// n returns a number below most, and chance says yes with a probability.
func (w *world) n(most int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(most)
}

func (w *world) chance(p float64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.Float64() < p
}

func (w *world) identity() *crypto.Identity {
	var seed [32]byte
	w.mu.Lock()
	for i := 0; i < len(seed); i += 8 {
		binary.BigEndian.PutUint64(seed[i:], w.rng.Uint64())
	}
	w.mu.Unlock()
	id, err := crypto.IdentityFromSeed(seed[:])
	require.NoError(w.t, err)
	return id
}

// A node is one relay. Its stores survive it.
type node struct {
	w     *world
	cfg   mesh.Config
	store inbox.Store
	state *directoryState

	net    *pipe.Network
	srv    *relay.Server
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// A directoryState counts the relays that a mesh has put into its directory.
type directoryState struct {
	inbox.State
	known atomic.Int64
}

func (s *directoryState) Put(ctx context.Context, bucket, key string, value []byte) error {
	if _, had, _ := s.Get(ctx, bucket, key); bucket == "mesh-relays" && !had {
		s.known.Add(1)
	}
	return s.State.Put(ctx, bucket, key, value)
}

func (s *directoryState) Delete(ctx context.Context, bucket, key string) error {
	if _, had, _ := s.Get(ctx, bucket, key); bucket == "mesh-relays" && had {
		s.known.Add(-1)
	}
	return s.State.Delete(ctx, bucket, key)
}

// add makes a relay, which is not up.
func (w *world) add() *node {
	n := &node{w: w, store: inbox.NewMemory(nil), state: &directoryState{State: inbox.NewMemoryState(nil)}}
	n.cfg = mesh.Config{
		Identity: w.identity(), Admission: mesh.Open{}, Dial: n.dial, Durable: true, State: n.state,
		Advertise: "ws://r" + strconv.Itoa(len(w.nodes)) + ".example", Logger: slog.New(slog.DiscardHandler),
	}
	w.nodes = append(w.nodes, n)
	return n
}

// peer is how an operator names the relay.
func (n *node) peer() mesh.Peer {
	key := n.cfg.Identity.Public()
	return mesh.Peer{Address: n.cfg.Advertise, Key: &key}
}

func (n *node) start() {
	m := mesh.New(&n.cfg)
	n.net = pipe.Listen()
	n.srv = &relay.Server{Inbox: n.store, Mesh: m, Logger: n.cfg.Logger}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.wg.Go(func() { _ = m.Run(ctx, n.srv) })
	n.wg.Go(func() {
		_ = n.srv.Serve(n.net, brep.Dialect{Identity: n.cfg.Identity, Mesh: m, Durable: true, Advertise: n.cfg.Advertise})
	})
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.w.at[n.cfg.Advertise] = n
	n.w.up = append(n.w.up, n)
}

// kill stops a relay whose lines have been cut, so that it says nothing to others.
func (n *node) kill() {
	w := n.w
	w.mu.Lock()
	delete(w.at, n.cfg.Advertise)
	for i, up := range w.up {
		if up == n {
			w.up = append(w.up[:i], w.up[i+1:]...)
			break
		}
	}
	w.mu.Unlock()
	w.cut(func(l *line) bool { return l.from == n || l.to == n })
	_ = n.srv.Close()
	n.cancel()
	n.wg.Wait()
}

// A line is a connection between two relays.
type line struct {
	transport.Conn
	from, to *node
	since    time.Time
}

func (n *node) dial(ctx context.Context, address string, _ *net.Dialer) (transport.Conn, error) {
	w := n.w
	w.mu.Lock()
	to := w.at[address]
	lost := w.rng.Float64() < w.loss
	w.mu.Unlock()
	if to == nil || lost {
		return nil, net.ErrClosed
	}
	c, err := to.net.Dial(ctx)
	if err != nil {
		return nil, err
	}
	l := &line{c, n, to, time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines[l] = struct{}{}
	return l, nil
}

func (w *world) links() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.lines)
}

// cut breaks lines.
func (w *world) cut(which func(*line) bool) {
	var cut []*line
	w.mu.Lock()
	for l := range w.lines {
		if which(l) {
			cut = append(cut, l)
		}
	}
	w.mu.Unlock()
	for _, l := range cut {
		_ = l.Close(0, "")
	}
}

func (l *line) Close(code uint16, reason string) error {
	l.from.w.mu.Lock()
	delete(l.from.w.lines, l)
	l.from.w.mu.Unlock()
	return l.Conn.Close(code, reason)
}

func (l *line) Read() (transport.Kind, []byte, error) {
	k, msg, err := l.Conn.Read()
	if err == nil {
		l.count(msg)
	}
	return k, msg, err
}

func (l *line) Write(k transport.Kind, msgs [][]byte) (int, error) {
	n, err := l.Conn.Write(k, msgs)
	l.count(msgs[:n]...)
	return n, err
}

// TryWrite implements transport.TryWriter.
func (l *line) TryWrite(k transport.Kind, msgs [][]byte) (int, error) {
	n, err := l.Conn.(transport.TryWriter).TryWrite(k, msgs)
	l.count(msgs[:n]...)
	return n, err
}

// SetDry implements transport.Batcher.
func (l *line) SetDry(dry func()) { l.Conn.(transport.Batcher).SetDry(dry) }

func (l *line) count(msgs ...[]byte) {
	for _, msg := range msgs {
		t := &l.from.w.traffic[l.use(msg)]
		t.frames.Add(1)
		t.bytes.Add(int64(len(msg)))
	}
}

func (l *line) use(msg []byte) use {
	switch frame.Type(msg[frame.BrepTypeOffset]) {
	case frame.TypeWhere, frame.TypeAt:
		return finding
	case frame.TypeNodeInfo:
		switch sub := frame.NodeInfoSubtype(msg[frame.BrepHeaderSize]); {
		case sub == frame.NodeInfoQueryClient || sub == frame.NodeInfoQueryResponse:
			return querying
		case time.Since(l.since) < time.Second:
			return opening
		}
		return upkeep
	case frame.TypeHandshake:
		return opening
	case frame.TypeData, frame.TypeReceipt:
		return carrying
	case frame.TypeHere, frame.TypeMail, frame.TypeFetch, frame.TypeEntry, frame.TypeDone:
		return telling
	}
	return upkeep
}
