package client

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/transport"
)

var errKilled = errors.New("killed")

// A mortal is a program with a client that can be killed: from then on nothing of
// it reaches its store or the network.
type mortal struct {
	inbox.State                  // outlives it
	dialer      transport.Dialer // likewise

	mu    sync.Mutex
	dead  bool
	died  func() // may be nil
	conns []transport.Conn
	left  int  // changes of the store until it dies; zero: for ever
	done  bool // the last one is made
	count int
	wrote bool // the last one: a message
}

func (m *mortal) kill() {
	m.mu.Lock()
	m.dead = true
	conns := m.conns
	m.mu.Unlock()
	for _, c := range conns {
		_ = c.Close(0, "")
	}
	if m.died != nil {
		m.died()
	}
}

// change counts a change. killed: it does not return to the program.
func (m *mortal) change(message bool) (do, killed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return false, true
	}
	m.count++
	if m.count != m.left {
		return true, false
	}
	m.dead, m.wrote = true, m.done && message
	return m.done, true
}

func (m *mortal) Put(ctx context.Context, bucket, key string, value []byte) error {
	do, killed := m.change(strings.HasPrefix(bucket, outboxBucket))
	if do {
		if err := m.State.Put(ctx, bucket, key, value); err != nil {
			return err
		}
	}
	return m.outcome(killed)
}

func (m *mortal) Delete(ctx context.Context, bucket, key string) error {
	do, killed := m.change(false)
	if do {
		if err := m.State.Delete(ctx, bucket, key); err != nil {
			return err
		}
	}
	return m.outcome(killed)
}

func (m *mortal) outcome(killed bool) error {
	if !killed {
		return nil
	}
	m.kill()
	return errKilled
}

func (m *mortal) dial(ctx context.Context) (transport.Conn, error) {
	c, err := m.dialer(ctx)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		_ = c.Close(0, "")
		return nil, net.ErrClosed
	}
	m.conns = append(m.conns, c)
	return c, nil
}

func (m *mortal) isDead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

// wroteLast says whether the change that killed it was that of a message, and made.
func (m *mortal) wroteLast() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wrote
}

func (m *mortal) config(c *Config) { c.Store, c.Dial, c.StartOffline = m, m.dial, true }

// A mortalInbox is a relay's until that is killed.
type mortalInbox struct {
	inbox.Store
	dead atomic.Bool
}

func (m *mortalInbox) Put(ctx context.Context, e *inbox.Entry, q inbox.Quota, done func(inbox.Result)) {
	if m.dead.Load() {
		done(inbox.Result{Err: errKilled})
		return
	}
	m.Store.Put(ctx, e, q, done)
}

func (m *mortalInbox) Delete(ctx context.Context, to inbox.Address, seqs ...uint64) (int, error) {
	if m.dead.Load() {
		return 0, errKilled
	}
	return m.Store.Delete(ctx, to, seqs...)
}

// restart kills the relay and starts it again on the inbox that it had.
func (r *rig) restart() {
	r.mu.Lock()
	s, old, conns := r.server, r.store, r.conns
	r.server, r.conns = nil, nil
	r.mu.Unlock()
	for _, c := range conns { // first: who is killed tells nobody that he could not store
		_ = c.Close(0, "")
	}
	m, ok := old.(*mortalInbox)
	if ok {
		m.dead.Store(true)
		old = m.Store
	}
	if s != nil {
		_ = s.Close()
	}
	r.mu.Lock()
	r.store = &mortalInbox{Store: old}
	r.mu.Unlock()
	r.start()
}
