package brep

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
)

// receipt returns the next frame, a RECEIPT for withID(id).
func (p *peer) receipt(id byte) frame.Receipt {
	p.t.Helper()
	f := p.next()
	require.Equal(p.t, frame.TypeReceipt, f.Type, "%+v", f)
	require.Equal(p.t, [32]byte(identity(p.t, relaySeed).Public()), f.Sender)
	r, err := frame.DecodeReceipt(f.Payload)
	require.NoError(p.t, err)
	require.Equal(p.t, [16]byte{0: id, 15: id}, r.ID)
	return r
}

// error returns the next frame, an ERROR.
func (p *peer) error() frame.Error {
	p.t.Helper()
	f := p.next()
	require.Equal(p.t, frame.TypeError, f.Type, "%+v", f)
	e, err := frame.DecodeError(f.Flags, f.Payload)
	require.NoError(p.t, err)
	return e
}

// later is a store that answers a put only when told to.
type later struct {
	inbox.Store
	puts chan func()
}

func (l *later) Put(ctx context.Context, e *inbox.Entry, q inbox.Quota, done func(inbox.Result)) {
	l.Store.Put(ctx, e, q, func(r inbox.Result) { l.puts <- func() { done(r) } })
}

func TestReceipts(t *testing.T) {
	const here, away = 2, 3
	type answer struct {
		receipt frame.ReceiptStatus // zero: none
		err     bool                // an ERROR frame
		code    frame.Code
	}
	noInbox := func(*rig) {}
	memory := func(r *rig) { r.server.Inbox = inbox.NewMemory(nil) }
	fullInbox := func(r *rig) {
		memory(r)
		r.server.Limits.Dialects = map[string]relay.DialectLimits{"brep": {InboxBytes: 1}}
	}
	for _, c := range []struct {
		name  string
		set   func(*rig)
		to    byte
		flags uint8
		id    byte
		want  answer
	}{
		{"handed over", noInbox, here, frame.FlagReceipt, 1, answer{receipt: frame.ReceiptHandedOver}},
		{"handed over, unasked", noInbox, here, 0, 1, answer{}},
		{"handed over, without an id", noInbox, here, frame.FlagReceipt, 0, answer{}},
		{"handed over, ephemeral", noInbox, here, frame.FlagReceipt | frame.FlagEphemeral, 1, answer{receipt: frame.ReceiptHandedOver}},
		{"stored", memory, away, frame.FlagReceipt, 1, answer{receipt: frame.ReceiptStored}},
		{"stored, unasked", memory, away, 0, 1, answer{}},
		{"refused", noInbox, away, frame.FlagReceipt, 1, answer{receipt: frame.ReceiptRefused, code: frame.CodeNotHere}},
		{"refused, unasked", noInbox, away, 0, 1, answer{err: true, code: frame.CodeNotHere}},
		{"refused, without an id", noInbox, away, frame.FlagReceipt, 0, answer{err: true, code: frame.CodeNotHere}},
		{"ephemeral is never stored", memory, away, frame.FlagReceipt | frame.FlagEphemeral, 1, answer{receipt: frame.ReceiptRefused, code: frame.CodeNotHere}},
		{"full", fullInbox, away, frame.FlagReceipt, 1, answer{receipt: frame.ReceiptRefused, code: frame.CodeInboxFull}},
		{"full, unasked", fullInbox, away, 0, 1, answer{err: true, code: frame.CodeInboxFull}},
	} {
		for _, slow := range []bool{false, true} {
			name := c.name
			set := c.set
			if slow {
				name += ", by a slow store"
				set = func(r *rig) {
					if c.set(r); r.server.Inbox != nil {
						r.server.Inbox = &later{r.server.Inbox, make(chan func(), 1)}
					}
				}
			}
			t.Run(name, func(t *testing.T) {
				bubble(t, set, func(t *testing.T, r *rig) {
					alice := r.login(identity(t, 1), formExtended)
					r.login(identity(t, here), formExtended)
					key := identity(t, c.to).Public()
					alice.send(withID(alice.frame(frame.TypeData, key[:]), c.id, c.flags))
					synctest.Wait()
					if l, ok := r.server.Inbox.(*later); ok && len(l.puts) > 0 {
						(<-l.puts)()
					}
					alice.send(alice.frame(frame.TypeNodeInfo, []byte{byte(frame.NodeInfoRequestServers)}))

					if c.want.receipt != 0 {
						got := alice.receipt(c.id)
						require.Equal(t, c.want.receipt, got.Status)
						require.Equal(t, c.want.code, got.Code)
					}
					if c.want.err {
						got := alice.error()
						require.Equal(t, c.want.code, got.Code)
						require.Equal(t, withID(&frame.Brep{}, c.id, 0).ID, got.ID)
					}
					require.Equal(t, frame.TypeNodeInfo, alice.next().Type, "and nothing else")
				})
			})
		}
	}
}

// TestLegacyHearsNothing: what becomes of its frames is no matter of version 1.
func TestLegacyHearsNothing(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		alice := r.login(identity(t, 1), formLegacy)
		key := identity(t, 2).Public()
		for _, flags := range []uint8{0, 0xff} {
			alice.put(0, withID(alice.frame(frame.TypeData, key[:]), 1, flags).Append(nil))
		}
		alice.send(alice.frame(frame.TypeNodeInfo, []byte{byte(frame.NodeInfoRequestServers)}))
		require.Equal(t, frame.TypeNodeInfo, alice.next().Type)
		require.EqualValues(t, 2, r.server.Stats().Refused)
	})
}
