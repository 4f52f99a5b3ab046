package relay

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sotto-relay/sotto/transport"
	"golang.org/x/time/rate"
)

// A speaker is a dialect with its limits, as one Serve or Speak set it up.
type speaker struct {
	dialect Dialect
	limits  DialectLimits
	gate    *gate // of all that speak the dialect
}

// A Port is a session's way into the relay: one connection.
//
// Send, Join, Leave and Publish are for the session's own calls (Receive, Close,
// functions given to After, NewSession); Claim, Ready and SetForm for Receive and
// NewSession. The other methods may be called by anybody.
type Port struct {
	s       *Server
	conn    transport.Conn
	speaker *speaker
	out     outbox
	ctx     context.Context // ends when the connection begins to end
	cancel  context.CancelFunc
	id      uint64
	opened  time.Time
	source  netip.Prefix
	address atomic.Pointer[Address]

	// Owned by whoever holds loop: the reading goroutine while it is in Receive, a
	// timer, the end.
	loop    sync.Mutex
	session Session
	seat    *seat
	weak    bool
	token   string
	expiry  func() // cancels the timer of the grant
	form    uint8  // set before the port can be found by others
	ready   bool
	stamp   time.Time   // when the message came that is being received; zero: none is
	late    *time.Timer // ends the connection if it is not ready in time
	closed  bool
	timers  map[*time.Timer]struct{}
	groups  map[*group]struct{}
	renders []rendered

	// Owned by the reading goroutine.
	batching bool
	now      time.Time
	perMsg   *rate.Limiter
	perByte  *rate.Limiter

	// Outboxes that found themselves idle during this batch; flushed at its end.
	dirtyMu sync.Mutex
	inBatch bool
	dirty   []*Port
	spare   []*Port // memory for dirty

	ending atomic.Bool
	ended  chan struct{} // closed when the end is complete
	err    error         // why; before ended is closed
}

// A Claim is a session's wish to be an address.
type Claim struct {
	Address Address

	// Greeting is sent before anything that is for the address: the confirmation
	// of a login. May be empty.
	Greeting []byte
	Kind     transport.Kind

	// Weak sessions cannot take an address over from one that is not.
	Weak bool

	// Acks says that the session acknowledges what it is sent (Acknowledge). What
	// it has not acknowledged when it ends goes back to the inbox.
	Acks bool

	// InUse says what becomes of a session that has the address already. The zero
	// value has it taken over.
	InUse InUse

	// Token is presented to the policy; empty: what came with the connection.
	Token string
}

// InUse is a policy for an address that is in use.
type InUse uint8

const (
	TakeOver InUse = iota // the older session is closed with CodeReplaced
	Reject                // the newer one is refused with CodeDenied
	Share                 // both get a copy of what is live; what is stored goes to one
)

// Claim makes the session the one that messages for an address go to, and so
// ready. An older session of the address is closed with CodeReplaced; what it
// had not written comes to this one. The inbox is flushed from here on. A port
// claims one address, once.
func (p *Port) Claim(c Claim) error {
	if p.seat != nil {
		return &Refusal{Code: CodeInternal, Err: errors.New("relay: the session has an address already")}
	}
	if p.s.Load() == Overloaded {
		return &Refusal{Code: CodeOverloaded, Reason: "relay overloaded, retry later"}
	}
	p.weak = c.Weak
	if c.Token != "" {
		p.token = c.Token
	}
	if err := p.askClaim(c.Address); err != nil {
		return err
	}
	if p.openBatch() { // so that nothing is written under the seat's locks
		defer p.closeBatch()
	}
	p.out.setWindow(c.Acks, &p.s.limits)
	st := p.s.router.acquire(c.Address)
	old, err := p.s.sit(st, p, &c)
	if err != nil {
		p.s.router.release(st)
		return err
	}
	p.seat = st
	p.address.Store(&st.addr)
	p.Ready()
	p.s.watch(func(t *Trace) {
		if t.Claimed != nil {
			t.Claimed(p.Info(), st.addr)
		}
	})
	if old != nil {
		go old.end(&Refusal{Code: CodeReplaced, Reason: "replaced by a newer login"})
	}
	return nil
}

// Ready says that the peer has done what its dialect wants of it before it may
// hold resources: the time limit ends and longer messages are read. Claim
// implies it.
func (p *Port) Ready() {
	if p.ready {
		return
	}
	p.ready = true
	p.s.unreadyDone()
	p.late.Stop()
	p.late = nil
	p.conn.SetReadLimit(p.speaker.limits.MessageBytes)
}

// Address returns the claimed address; zero if there is none.
func (p *Port) Address() Address {
	if p.seat == nil {
		return Address{}
	}
	return p.seat.addr
}

// SetForm sets the form that messages are rendered in for this session. Before
// Claim and Join.
func (p *Port) SetForm(form uint8) { p.form = form }

// Send brings m to its recipient. From is set here. It does not block; an Outcome
// that is Pending is followed by a call of the session's Settled. (A session
// that keeps one Message for all its calls saves an allocation each.)
func (p *Port) Send(m *Message) Outcome {
	m.From = p.Address()
	m.received = 0
	if !p.stamp.IsZero() {
		m.received = p.stamp.Sub(p.s.start).Nanoseconds()
	}
	if hook := p.s.Policy.Send; hook != nil {
		if r := p.askSend(hook, m); r != nil {
			return p.s.refuse(r.Code)
		}
	}
	return p.s.route(m, p)
}

// Acknowledge says that the peer has taken over the message that came from an
// address with an id. One that nobody waits for is ignored.
func (p *Port) Acknowledge(from Address, id ID) {
	delivered, flush := p.out.acknowledge(from, id)
	if delivered > 0 {
		p.s.count.delivered.Add(int64(delivered))
		p.s.count.queued.Add(-int64(delivered))
	}
	if flush {
		p.flushLater(p)
	}
}

// Reply queues one message for the peer. It does not block. What is replied
// while the connection goes down may be lost.
func (p *Port) Reply(k transport.Kind, msg []byte) {
	switch p.out.pushFrame(control, frame{k, msg}, &p.s.limits) {
	case first:
		p.flushLater(p)
	case full:
		p.fail(&Refusal{Code: CodeOverloaded, Reason: "too many unread replies"})
	}
}

// After calls f after d, unless the connection has ended by then, in turn with
// the session's other calls. The function returned cancels it.
func (p *Port) After(d time.Duration, f func()) (cancel func()) {
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		p.loop.Lock()
		defer p.loop.Unlock()
		if _, on := p.timers[t]; on {
			delete(p.timers, t)
			f()
		}
	})
	if p.timers == nil {
		p.timers = make(map[*time.Timer]struct{})
	}
	p.timers[t] = struct{}{}
	return func() {
		t.Stop()
		delete(p.timers, t)
	}
}

// End closes the connection, after the session has been told; AsRefusal(err) is
// what the peer hears. It returns at once.
func (p *Port) End(err error) { p.fail(err) }

// Ignored counts something that the dialect dropped or ignored, under a fixed
// word of the dialect's such as "unknown type".
func (p *Port) Ignored(what string) {
	p.s.count.ignore(p.speaker.dialect.Name() + ": " + what)
}

// Online says whether a session has an address.
func (p *Port) Online(a Address) bool { return p.s.online(a) }

// RemoteAddr is the peer's address.
func (p *Port) RemoteAddr() net.Addr { return p.conn.RemoteAddr() }

// Log returns the server's logger.
func (p *Port) Log() *slog.Logger { return p.s.log }

// State returns the server's state store.
func (p *Port) State() State { return p.s.State }

func (p *Port) limits() *DialectLimits { return &p.speaker.limits }

func (p *Port) settled(r Receipt) {
	if st, ok := p.session.(Settler); ok {
		st.Settled(r)
	}
}

// read is the read loop. A session becomes ready in one goroutine and goes on in
// a fresh one: handshakes want a large stack, and what comes after does not.
func (p *Port) read() {
	err := p.begin()
	if err == nil {
		err = p.readUntilReady()
	}
	if err == nil {
		p.endBatch() // here, since writing wants a large stack too
		go func() { p.finish(p.readMessages()) }()
		return
	}
	p.finish(err)
}

func (p *Port) finish(err error) {
	p.endBatch()
	p.end(err)
	<-p.ended
	p.s.wg.Done()
}

func (p *Port) readUntilReady() error {
	for !p.ready {
		if err := p.readOne(); err != nil {
			return err
		}
	}
	return nil
}

func (p *Port) readMessages() error {
	for {
		if err := p.readOne(); err != nil {
			return err
		}
	}
}

func (p *Port) readOne() error {
	k, msg, err := p.conn.Read()
	if err != nil {
		return p.readFailed(err)
	}
	return p.received(k, msg)
}

// readFailed says what becomes of the connection. It and received stand apart
// from readOne so that the frame under an idle Read is small: it decides whether
// the stack of a connection is 2 KiB or 4.
//
//go:noinline
func (p *Port) readFailed(err error) error {
	switch {
	case errors.Is(err, transport.ErrTooLarge):
		return p.excess(&Refusal{Code: CodeTooLarge})
	case errors.Is(err, transport.ErrMalformed):
		return &Refusal{Code: CodeMalformed, Err: err}
	}
	return peerGone(err)
}

//go:noinline
func (p *Port) received(k transport.Kind, msg []byte) error {
	p.s.count.messages.Add(1)
	if !p.batching {
		p.batching, p.now = true, time.Now()
		p.openBatch()
	}
	if p.perMsg != nil && !p.free(msg) && !p.perMsg.AllowN(p.now, 1) || p.perByte != nil && !p.perByte.AllowN(p.now, len(msg)) {
		return p.excess(&Refusal{Code: CodeRateLimited})
	}
	p.loop.Lock()
	defer p.loop.Unlock()
	if p.closed {
		return errPeerGone
	}
	p.stamp = p.now
	err := p.session.Receive(p.ctx, k, msg)
	p.stamp = time.Time{}
	if _, ok := p.conn.(transport.Batcher); !ok {
		p.endBatch()
	}
	return err
}

// free says whether a message does not count against the rate.
func (p *Port) free(msg []byte) bool {
	a, ok := p.session.(Answering)
	return ok && a.Answers(msg) && p.out.answered()
}

func (p *Port) excess(r *Refusal) error {
	m, ok := p.session.(Metered)
	if !ok {
		return r
	}
	p.loop.Lock()
	defer p.loop.Unlock()
	if p.closed {
		return errPeerGone
	}
	return m.Excess(r)
}

// peerGone marks the ordinary ends of a connection.
func peerGone(err error) error {
	var ce *transport.CloseError
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &ce) {
		return errPeerGone
	}
	return errors.Join(errPeerGone, err)
}
