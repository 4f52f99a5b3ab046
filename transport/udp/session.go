package udp

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"hash/maphash"
	"net"
	"net/netip"
	"slices"
)

const (
	tokenSize = 32 // hex digits

	// mostTokens bounds those of a session that hold: the oldest and the newest.
	// There may be some under way when a dialect sends one with every answer.
	mostTokens = 16
)

// A token is one half of a pair that a session is found by.
type token struct {
	name  []byte
	value [tokenSize]byte
	hash  uint64
	to    netip.AddrPort // what it proves when it comes from there; zero once the session has moved
}

// opening returns the session, locked, that a datagram which opens one is for: a
// new one unless one is at its source. Nil: it is refused.
func (l *Listener) opening(from netip.AddrPort) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.bySource[from]; c != nil {
		c.mu.Lock()
		return c
	}
	if l.err != nil || len(l.backlog) == cap(l.backlog) {
		return nil
	}
	c := newConn(l, from)
	c.mu.Lock()
	l.conns[c], l.bySource[from] = struct{}{}, c
	l.backlog <- c // which has room, as nobody else fills it meanwhile
	return c
}

// paired returns the session, locked, that name and token belong to, having moved
// it to where they come from. Nil: they belong to none.
//
// A token is looked up by a hash, so that how long that takes says nothing about
// it, and compared in constant time.
func (l *Listener) paired(name, value []byte, from netip.AddrPort) *conn {
	hash := maphash.Bytes(l.seed, value)
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.byToken[hash]
	if c == nil {
		return nil
	}
	i := slices.IndexFunc(c.tokens, func(t token) bool { return t.hash == hash })
	t := &c.tokens[i]
	if subtle.ConstantTimeCompare(t.value[:], value)&subtle.ConstantTimeCompare(t.name, name) == 0 {
		return nil
	}
	c.revoke(0, i)
	c.mu.Lock()
	if from != c.source {
		c.move(from)
	}
	c.proven = c.proven || c.tokens[0].to == from
	return c
}

// move has the session be at another source. Both locks are held.
func (c *conn) move(to netip.AddrPort) {
	if to.Addr() != c.source.Addr() {
		c.proven = false
		for i := range c.tokens {
			c.tokens[i].to = netip.AddrPort{}
		}
	}
	if !c.proven {
		c.received, c.sent, c.greeting = 0, 0, false
	}
	c.leaveSource()
	if c.l.bySource[to] == nil {
		c.l.bySource[to] = c
	}
	c.source, c.peer = to, net.UDPAddrFromAddrPort(to)
}

// leaveSource is called with the listener's lock held.
func (c *conn) leaveSource() {
	if c.l.bySource[c.source] == c {
		delete(c.l.bySource, c.source)
	}
}

// revoke takes tokens from i up to j. It is called with the listener's lock held.
func (c *conn) revoke(i, j int) {
	for _, t := range c.tokens[i:j] {
		delete(c.l.byToken, t.hash)
	}
	c.tokens = slices.Delete(c.tokens, i, j)
}

// Renew is transport.Datagram's.
func (c *conn) Renew(name string) string {
	l := c.l
	l.mu.Lock()
	defer l.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	t := token{name: []byte(name), to: c.source}
	for taken := true; taken; _, taken = l.byToken[t.hash] {
		var random [tokenSize / 2]byte
		rand.Read(random[:]) // never fails
		hex.Encode(t.value[:], random[:])
		t.hash = maphash.Bytes(l.seed, t.value[:])
	}
	if c.err == nil {
		if len(c.tokens) == mostTokens {
			c.revoke(1, 2)
		}
		c.tokens = append(c.tokens, t)
		l.byToken[t.hash] = c
	}
	if !c.greeted {
		c.greeted, c.greeting = true, true
	}
	return string(t.value[:])
}

// Proven is transport.Datagram's.
func (c *conn) Proven() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proven
}

// end ends the session; the first call counts. Read returns err from then on.
func (c *conn) end(err error) {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked(err)
}

func (c *conn) endLocked(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	c.revoke(0, len(c.tokens))
	c.leaveSource()
	delete(c.l.conns, c)
	c.l.release()
	c.stop()
}
