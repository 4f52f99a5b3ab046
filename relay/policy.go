package relay

import (
	"context"
	"fmt"
	"net"
	"runtime/debug"
	"time"

	"github.com/sotto-relay/sotto/transport"
)

// A Policy decides what sessions may do. A nil function allows; an error
// refuses, and should be a *Refusal, since any other tells the peer nothing but
// CodeInternal. A Refusal with Close set ends the session where the refusal
// alone would not.
//
// Functions run on a goroutine of their own, under Limits.HookTimeout, and may
// be called concurrently. One that takes longer has refused; what it returns
// later is ignored. One that panics ends the session. Meanwhile the session that
// asked waits, and no other.
type Policy struct {
	// Connect is asked before anything is read.
	Connect func(context.Context, ConnInfo) error

	// Claim is asked when a session wants an address, after it has proven what its
	// dialect has it prove, and again when it brings a new token (Port.Renew).
	Claim func(context.Context, ClaimInfo) (Grant, error)

	// Send is asked for every message to an address, Publish for every one to a
	// group or a topic, Join for every group that a session joins, Subscribe for
	// every filter. What they point to is borrowed for the call.
	//
	// Send is asked for what comes from other relays too: Conn is the link, which waits
	// as a session does, From whoever the other relay says that it is of, and a refusal
	// does not end the link.
	Send      func(context.Context, SendInfo) error
	Publish   func(context.Context, SendInfo) error
	Join      func(context.Context, JoinInfo) error
	Subscribe func(context.Context, JoinInfo) error
}

// A ConnInfo describes a connection.
type ConnInfo struct {
	ID      uint64 // unique in this Server
	Dialect string // in which it began
	Remote  net.Addr
	Opened  time.Time

	// Value returns what the medium knows of the connection (transport.Conn).
	Value func(key any) any
}

// A ClaimInfo is the wish of a session for an address.
type ClaimInfo struct {
	Conn    ConnInfo
	Address Address
	Weak    bool   // as in Claim
	Token   string // presented with the connection or in-band; empty: none
}

// A Grant is what a Claim function gives.
type Grant struct {
	// Expires ends the session with CodeNotAuthenticated, unless it is renewed
	// before. Zero: never.
	Expires time.Time
}

// A SendInfo is a message on its way.
type SendInfo struct {
	Conn     ConnInfo
	From, To Address // To is a group or a topic when it is published
	Size     int     // of the message in wire form, in bytes
}

// A JoinInfo is the wish of a session to be in a group, or to get what is
// published to topics.
type JoinInfo struct {
	Conn  ConnInfo
	From  Address
	Group Address // for Subscribe: the filter
}

// Info describes the connection.
func (p *Port) Info() ConnInfo {
	return ConnInfo{
		ID: p.id, Dialect: p.began.dialect.Name(), Remote: p.conn.RemoteAddr(),
		Opened: p.opened, Value: p.conn.Value,
	}
}

// ask is consult, and ends the session if the answer says so.
func (p *Port) ask(hook func(context.Context) error) error {
	err := p.consult(hook)
	if r := AsRefusal(err); err != nil && r.Close != 0 {
		p.fail(r)
	}
	return err
}

// consult runs a hook of the embedder's: in time, contained, and for no longer than
// the connection lasts.
func (p *Port) consult(hook func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(p.ctx, p.s.limits.HookTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				p.s.log.Error("policy panicked", "panic", v, "stack", string(debug.Stack()))
				done <- &Refusal{Code: CodeInternal, Close: transport.CloseInternal, Err: fmt.Errorf("policy panicked: %v", v)}
			}
		}()
		done <- hook(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		if p.ctx.Err() != nil {
			return errPeerGone
		}
		return &Refusal{Code: CodeOverloaded, Reason: "the policy took too long", Err: ctx.Err()}
	}
}

// askClaim asks whether the session may have, or keep, an address.
func (p *Port) askClaim(a Address) (g Grant, err error) {
	if p.s.Policy.Claim == nil {
		return Grant{}, nil
	}
	var granted Grant
	info := ClaimInfo{Conn: p.Info(), Address: a, Weak: p.weak, Token: p.token}
	err = p.ask(func(ctx context.Context) (err error) {
		granted, err = p.s.Policy.Claim(ctx, info) // not read when ask has given up
		return err
	})
	if err != nil {
		return Grant{}, AsRefusal(err)
	}
	return granted, nil
}

// hold has the session end with a grant, and not with the one before.
func (p *Port) hold(g Grant) {
	if p.expiry != nil {
		p.expiry()
		p.expiry = nil
	}
	if !g.Expires.IsZero() {
		p.expiry = p.After(time.Until(g.Expires), func() {
			p.fail(&Refusal{Code: CodeNotAuthenticated, Reason: "the authorization has expired"})
		})
	}
}

// Renew presents a new token for a session that has an address. An error leaves
// the authorization as it was.
func (p *Port) Renew(token string) error {
	old := p.token
	p.token = token
	if p.seat == nil {
		return nil // Claim will ask
	}
	grant, err := p.askClaim(p.seat.addr)
	if err != nil {
		p.token = old
		return err
	}
	p.hold(grant)
	return nil
}

// askSend asks a function of the policy about m. A refusal that ends the session
// does so here.
func (p *Port) askSend(hook func(context.Context, SendInfo) error, m *Message) *Refusal {
	return p.askAbout(m, hook, p.ask)
}

// askArrived asks the policy about a message that another relay has brought.
func (p *Port) askArrived(m *Message) *Refusal {
	if p.s.Policy.Send == nil {
		return nil
	}
	return p.askAbout(m, p.s.Policy.Send, p.consult)
}

func (p *Port) askAbout(m *Message, hook func(context.Context, SendInfo) error, ask func(func(context.Context) error) error) *Refusal {
	info := SendInfo{Conn: p.Info(), From: m.From, To: m.To, Size: len(m.Data)}
	err := ask(func(ctx context.Context) error { return hook(ctx, info) })
	if err == nil {
		return nil
	}
	return AsRefusal(err)
}

// presented returns the token that came with the connection.
func presented(c transport.Conn) string {
	token, _ := c.Value(transport.TokenKey).(string)
	return token
}
