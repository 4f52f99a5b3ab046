package relay

import (
	"container/list"
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
	outbox  outboxLimits
	gate    *gate // of all that speak the dialect

	// Of those that do in datagrams: where they come from can be forged, so they must
	// not take the places of connections.
	datagrams *gate
}

// A Port is a session's way into the relay: one connection.
//
// Send, Join, Leave and Publish are for the session's own calls (Receive, Close,
// functions given to After, NewSession); Claim, Ready and SetForm for Receive and
// NewSession. The other methods may be called by anybody.
type Port struct {
	s       *Server
	conn    transport.Conn
	began   *speaker // not changed
	speaker *speaker // began, or what Become made of it; owned as session is
	out     outbox
	ctx     context.Context // ends when the connection begins to end
	cancel  context.CancelFunc
	id      uint64
	opened  time.Time
	source  netip.Prefix
	gate    *gate // the speaker's that it has entered
	address atomic.Pointer[Address]

	// Owned by whoever holds loop: the reading goroutine while it is in Receive, a
	// timer, the end.
	loop    sync.Mutex
	session Session
	seat    *seat
	weak    bool
	rank    uint64 // of the claim, in time; under the seat's lock
	token   string
	expiry  func() // cancels the timer of the grant
	form    uint8  // set before the port can be found by others
	ready   bool
	stamp   time.Time   // when the message came that is being received; zero: none is
	late    *time.Timer // ends the connection if it is not ready in time
	closed  bool
	timers  map[*time.Timer]struct{}
	groups  map[*group]struct{}       // under router.moves too
	aliases *int                      // live ones that it made; under router.moves, and outlives the port
	games   map[Address]*list.Element // that it waits for; under Server.games.mu
	topics  subscriptions
	unacked *time.Timer // runs storeUnacked; under out.mu
	renders []rendered

	// Owned by the reading goroutine.
	batching bool
	batched  int // bytes
	now      time.Time
	perMsg   *rate.Limiter
	perByte  *rate.Limiter

	batcher // of the messages that are read

	ending atomic.Bool
	ended  chan struct{} // closed when the end is complete
	err    error         // why; before ended is closed
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

// Unproven says that the peer has to show first that what is sent reaches it. Until
// Prove, nothing is sent to it from the inbox, and no more than credit bytes of
// other things: what exceeds them is stored, or dropped where it cannot be.
func (p *Port) Unproven(credit int) { p.out.setCredit(true, credit) }

// Credit adds to the bytes that may be sent to a peer that is unproven.
func (p *Port) Credit(n int) { p.out.addCredit(n) }

// Prove ends what Unproven began.
func (p *Port) Prove() { p.out.setCredit(false, 0) }

// Acknowledge says that the peer has taken over the message that came from an
// address with an id. One that nobody waits for is ignored. With a proof that is
// not empty the sender's session is told (NoticeAcknowledged).
func (p *Port) Acknowledge(from Address, id ID, proof []byte) {
	delivered, awaited, flush := p.out.acknowledge(from, id)
	if awaited && len(proof) > 0 {
		p.s.tell(from, p, Notice{Kind: NoticeAcknowledged, Peer: p.Address(), ID: id, Proof: proof})
	}
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
	switch p.out.pushFrame(control, frame{k, msg}) {
	case first:
		p.flushLater(p)
	case full:
		p.fail(&Refusal{Code: CodeOverloaded, Reason: "too many unread replies"})
	case held:
		p.Ignored("reply to an unproven peer")
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

// Queued returns how many messages wait in the inbox of an address.
func (p *Port) Queued(a Address) int {
	if p.s.Inbox == nil {
		return 0
	}
	n, _, err := p.s.Inbox.Count(p.s.ctx, a)
	if err != nil {
		p.s.log.Error("inbox: count", "err", err)
	}
	return n
}

// Source is what stands for the peer's address in limits; see [Source].
func (p *Port) Source() netip.Prefix { return p.source }

// Shared returns what the sessions of a server have in common under a key of
// their dialect's, made by create for the first that asks.
func (p *Port) Shared(key any, create func() any) any {
	v, ok := p.s.shared.Load(key)
	if !ok {
		v, _ = p.s.shared.LoadOrStore(key, create())
	}
	return v
}

// State returns the server's state store.
func (p *Port) State() State { return p.s.State }

// Limits returns the limits of the session's dialect.
func (p *Port) Limits() DialectLimits { return p.speaker.limits }

// Load returns the server's load tier.
func (p *Port) Load() Tier { return p.s.Load() }

func (p *Port) limits() *DialectLimits { return &p.speaker.limits }

// notifyBy is notify; by sees to the flushing of what the session replies.
func (p *Port) notifyBy(by origin, n Notice) {
	opened := p.openBatch()
	p.notify(n)
	if opened {
		p.handOver(by)
	}
}

// notify tells the session something, if that wants to know.
func (p *Port) notify(n Notice) {
	if s, ok := p.session.(Notified); ok {
		s.Notify(n)
	}
}

// settled tells the session. What it replies goes out when it has returned, and so
// let go of any lock of its own.
func (p *Port) settled(r Receipt) {
	if st, ok := p.session.(Settler); ok {
		if p.openBatch() {
			defer p.closeBatch()
		}
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
		return p.excess(&Refusal{Code: CodeTooLarge}, nil)
	case errors.Is(err, transport.ErrMalformed):
		return &Refusal{Code: CodeMalformed, Err: err}
	}
	return peerGone(err)
}

// A batch ends after this many bytes, with so many more for each message.
const (
	batchBytes    = 64 << 10
	batchOverhead = 256
)

//go:noinline
func (p *Port) received(k transport.Kind, msg []byte) error {
	p.s.count.messages.Add(1)
	if !p.batching {
		p.batching, p.batched, p.now = true, 0, time.Now()
		p.openBatch()
	}
	if p.perMsg != nil && !p.free(msg) && !p.perMsg.AllowN(p.now, 1) || p.perByte != nil && !p.perByte.AllowN(p.now, len(msg)) {
		return p.excess(&Refusal{Code: CodeRateLimited}, msg)
	}
	p.loop.Lock()
	defer p.loop.Unlock()
	if p.closed {
		return errPeerGone
	}
	p.stamp = p.now
	err := p.session.Receive(p.ctx, k, msg)
	p.stamp = time.Time{}
	// A peer that never pauses must not keep what it sends from those it is for.
	p.batched += len(msg) + batchOverhead
	if _, ok := p.conn.(transport.Batcher); !ok || p.batched > batchBytes {
		p.endBatch()
	}
	return err
}

// free says whether a message does not count against the rate.
func (p *Port) free(msg []byte) bool {
	a, ok := p.session.(Answering)
	return ok && a.Answers(msg) && p.out.answered()
}

func (p *Port) excess(r *Refusal, msg []byte) error {
	m, ok := p.session.(Metered)
	if !ok {
		return r
	}
	p.loop.Lock()
	defer p.loop.Unlock()
	if p.closed {
		return errPeerGone
	}
	return m.Excess(r, msg)
}

// peerGone marks the ordinary ends of a connection.
func peerGone(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return errPeerGone
	}
	return errors.Join(errPeerGone, err)
}
