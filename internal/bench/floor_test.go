package bench

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/transport"
)

// A floor is the least that a router can do over our media: after the login every
// frame goes, unchecked, to the name in it. There is no limit, no inbox, no
// accounting and no second look at the sender, and what a peer does not take at
// once is written by a goroutine. The distance to it is what the relay costs a
// message.
type floor struct {
	id *crypto.Identity

	mu    sync.RWMutex
	peers map[[32]byte]*floorPeer
}

func newFloor(tb testing.TB) *floor {
	id, err := crypto.GenerateIdentity()
	require.NoError(tb, err)
	return &floor{id: id, peers: make(map[[32]byte]*floorPeer)}
}

type floorPeer struct {
	conn transport.Conn

	mu      sync.Mutex
	queue   []byte
	ends    []int
	writing bool

	// Owned by whoever writes.
	out       []byte
	all, vecs [][]byte // messages in out; those left

	dirty []*floorPeer // whose queues were empty in this batch
}

func (f *floor) HandleConn(c transport.Conn) { go f.serve(c) }

func (f *floor) serve(c transport.Conn) {
	p := &floorPeer{conn: c}
	c.(transport.Batcher).SetDry(func() {
		for _, q := range p.dirty {
			q.flush()
		}
		p.dirty = p.dirty[:0]
	})
	defer c.Close(0, "")
	key, err := f.login(c)
	if err != nil {
		return
	}
	f.mu.Lock()
	f.peers[key] = p
	f.mu.Unlock()
	for {
		_, msg, err := c.Read()
		if err != nil || len(msg) < frame.BrepHeaderSize+32 {
			return
		}
		if frame.Type(msg[2]) == frame.TypeAck {
			continue
		}
		f.mu.RLock()
		to := f.peers[[32]byte(msg[frame.BrepHeaderSize:])]
		f.mu.RUnlock()
		if to != nil && to.push(msg) {
			p.dirty = append(p.dirty, to)
		}
	}
}

// login shakes hands, so that the clients are those of the relay.
func (f *floor) login(c transport.Conn) (key [32]byte, err error) {
	a, err := handshake.NewAcceptor(&handshake.AcceptorConfig{Identity: f.id})
	if err != nil {
		return key, err
	}
	for reply := a.Challenge(); !a.Done(); {
		if _, err := c.Write(transport.Binary, [][]byte{reply.Append(nil)}); err != nil {
			return key, err
		}
		_, msg, err := c.Read()
		if err != nil {
			return key, err
		}
		answer, err := frame.DecodeBrep(msg)
		if err != nil {
			return key, err
		}
		if reply, err = a.Receive(&answer); err != nil {
			return key, err
		}
		if peer, ok := a.Peer(); ok {
			key = peer.Key
			_, err = c.Write(transport.Binary, [][]byte{reply.Append(nil)})
			return key, err
		}
	}
	return key, nil
}

// push says whether the caller has to flush.
func (p *floorPeer) push(msg []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, msg...)
	p.ends = append(p.ends, len(p.queue))
	first := !p.writing
	p.writing = true
	return first
}

func (p *floorPeer) flush() {
	if !p.write(p.conn.(transport.TryWriter).TryWrite, false) {
		go p.write(p.conn.Write, true)
	}
}

// write writes until nothing is left. Without wait it returns false when the
// medium takes no more.
func (p *floorPeer) write(w func(transport.Kind, [][]byte) (int, error), wait bool) bool {
	for {
		if len(p.vecs) == 0 && !p.take() {
			return true
		}
		n, err := w(transport.Binary, p.vecs)
		if err != nil {
			return true
		}
		p.vecs = p.vecs[n:]
		if len(p.vecs) > 0 && !wait {
			return false
		}
	}
}

func (p *floorPeer) take() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ends) == 0 {
		p.writing = false
		return false
	}
	p.queue, p.out = p.out[:0], p.queue
	start := 0
	p.all = p.all[:0]
	for _, end := range p.ends {
		p.all, start = append(p.all, p.out[start:end]), end
	}
	p.vecs, p.ends = p.all, p.ends[:0]
	return true
}
