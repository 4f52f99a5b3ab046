package relay

import (
	"errors"

	"github.com/sotto-relay/sotto/transport"
)

// A Claim is a session's wish to be an address.
type Claim struct {
	Address Address

	// Greeting is sent before anything that is for the address: the confirmation
	// of a login. May be empty.
	Greeting []byte
	Kind     transport.Kind

	// Latest has the claim count as of now. Without it a first claim counts as of the
	// beginning of the connection: a handshake that the network held up does not
	// take over from a newer connection.
	Latest bool

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

	// Confirm, if not nil, is called when what was in the inbox at the time of the
	// claim has been queued for the peer, with the number of those messages, unless
	// the session ends before that. What it Replies comes next; nothing else is its
	// to do, for it may be called on any goroutine and under locks.
	Confirm func(queued int)

	// Unproven says that the peer has not shown yet that what is sent reaches it
	// (Port.Unproven with no credit). Confirm is then called at once, with the
	// number of messages that wait.
	Unproven bool

	allowed bool // it has been counted as a takeover
}

// ErrInUse is in the Refusal of a claim for an address that is in use, with Reject.
var ErrInUse = errors.New("address in use")

// InUse is a policy for an address that is in use.
type InUse uint8

const (
	TakeOver InUse = iota // the older session is closed with CodeReplaced
	Reject                // the newer one is refused with CodeDenied
	Share                 // both get a copy of what is live; what is stored goes to one
)

// Claim makes the session the one that messages for an address go to, and so
// ready. An older session of the address is closed with CodeReplaced; what it
// had not written comes to this one. The inbox is flushed from here on.
//
// A session that has an address moves to the new one: it leaves the queues for
// games, and keeps groups and subscriptions. One that acknowledges cannot. The
// same address again is only confirmed, with what waits in its inbox.
//
// The error is a *Refusal, or that of the inbox. It leaves the session the address
// that it had, unless that was given up already for the new one: then the session ends.
func (p *Port) Claim(c Claim) error {
	if p.seat != nil && (c.Acks || p.out.window.on) {
		return &Refusal{Code: CodeInternal, Err: errors.New("relay: the session has an address already")}
	}
	if p.seat != nil && p.seat.addr == c.Address {
		return p.claimAgain(&c)
	}
	if p.s.Load() == Overloaded {
		return &Refusal{Code: CodeOverloaded, Reason: "relay overloaded, retry later"}
	}
	weak, token := p.weak, p.token
	p.weak = c.Weak
	if c.Token != "" {
		p.token = c.Token
	}
	grant, err := p.askClaim(c.Address)
	if err == nil {
		err = p.claim(&c)
	}
	if err != nil {
		p.weak, p.token = weak, token
		return err
	}
	p.hold(grant)
	return nil
}

// claim is Claim for an address that the session does not have and that the policy
// grants.
func (p *Port) claim(c *Claim) error {
	if p.openBatch() { // so that nothing is written under the seat's locks
		defer p.closeBatch()
	}
	p.out.setWindow(c.Acks, &p.s.limits)
	if c.Unproven {
		p.Unproven(0)
	}
	c.Latest = c.Latest || p.seat != nil
	st := p.s.router.acquire(c.Address)
	moves := p.seat != nil
	if moves {
		if r := st.allow(p, c); r != nil {
			p.s.router.release(st)
			return r
		}
		p.s.vacate(p.seat, p)
		p.s.went(p.seat)
		p.s.router.release(p.seat)
		p.seat = nil
		p.address.Store(nil)
		p.leaveGames()
	}
	old, err := p.s.sit(st, p, c)
	if err != nil {
		p.s.router.release(st)
		if moves { // the seat was contested just now, and the one before is left
			p.fail(err)
		}
		return err
	}
	p.seat = st
	p.address.Store(&st.addr)
	p.Ready()
	p.resumeLevel()
	p.s.watch(func(t *Trace) {
		if t.Claimed != nil {
			t.Claimed(p.Info(), st.addr)
		}
	})
	p.s.came(st)
	if old != nil {
		go old.end(&Refusal{Code: CodeReplaced, Reason: "replaced by a newer login"})
	}
	return nil
}

// claimAgain is Claim for the address that the session has.
func (p *Port) claimAgain(c *Claim) error {
	if c.Token != "" {
		if err := p.Renew(c.Token); err != nil {
			return err
		}
	}
	if c.Confirm != nil {
		c.Confirm(p.Queued(c.Address))
	}
	return nil
}
