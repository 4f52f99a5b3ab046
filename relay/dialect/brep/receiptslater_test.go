package brep

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
)

const (
	handedOver   = frame.ReceiptHandedOver
	stored       = frame.ReceiptStored
	acknowledged = frame.ReceiptAcknowledged
	refused      = frame.ReceiptRefused
	expired      = frame.ReceiptExpired
)

// A pair is a sender, who is there, and a recipient, who need not be.
type pair struct {
	*rig
	alice *peer
	bob   *crypto.Identity
}

// send sends the message, and waits for the relay to have taken it.
func (p *pair) send(flags uint8) {
	p.alice.send(p.alice.sealed(p.bob, 1, flags, "hello"))
	synctest.Wait()
}

// comes logs the recipient in.
func (p *pair) comes() *peer {
	b := p.login(p.bob, formExtended)
	synctest.Wait()
	return b
}

// withShortInbox keeps messages for a minute, and one of them.
func withShortInbox(r *rig) {
	withInbox(r)
	r.server.Limits.Dialects = map[string]relay.DialectLimits{
		"brep": {InboxTTL: time.Minute, InboxMessages: 1, DropOldest: true},
	}
}

// courses are what may become of a message that is sent with flags.
var courses = map[string]struct {
	set  func(*rig)
	run  func(p *pair, flags uint8)
	want []frame.ReceiptStatus
}{
	"handed over": {nil, func(p *pair, flags uint8) {
		p.comes()
		p.send(flags)
	}, []frame.ReceiptStatus{handedOver}},

	"acknowledged": {withInbox, func(p *pair, flags uint8) {
		b := p.comes()
		p.send(flags)
		b.acks(b.took())
	}, []frame.ReceiptStatus{handedOver, acknowledged}},

	"acknowledged twice": {withInbox, func(p *pair, flags uint8) {
		b := p.comes()
		p.send(flags)
		f := b.took()
		b.acks(f, f)
		b.acks(f)
	}, []frame.ReceiptStatus{handedOver, acknowledged}},

	"acknowledged without a signature": {withInbox, func(p *pair, flags uint8) {
		b := p.comes()
		p.send(flags)
		f := b.took()
		a := frame.Ack{Sender: f.Sender, ID: f.ID}
		b.send(b.frame(frame.TypeAck, a.Append(nil)))
	}, []frame.ReceiptStatus{handedOver}},

	"acknowledged by another": {withInbox, func(p *pair, flags uint8) {
		b, carol := p.comes(), p.login(identity(p.t, 3), formExtended)
		p.send(flags)
		carol.acks(b.took())
	}, []frame.ReceiptStatus{handedOver}},

	"not acknowledged in time": {withInbox, func(p *pair, flags uint8) {
		p.comes()
		p.send(flags)
		time.Sleep(time.Minute)
	}, []frame.ReceiptStatus{handedOver, stored}},

	"acknowledged late": {withInbox, func(p *pair, flags uint8) {
		b := p.comes()
		p.send(flags)
		time.Sleep(time.Minute)
		b.acks(b.took())
	}, []frame.ReceiptStatus{handedOver, stored, acknowledged}},

	"recipient goes": {withInbox, func(p *pair, flags uint8) {
		b := p.comes()
		p.send(flags)
		b.took()
		b.leave()
	}, []frame.ReceiptStatus{handedOver, stored}},

	"recipient goes and comes": {withInbox, func(p *pair, flags uint8) {
		b := p.comes()
		p.send(flags)
		f := b.took()
		b.leave()
		b = p.comes()
		again := b.took()
		require.Equal(p.t, f, again)
		b.acks(again)
	}, []frame.ReceiptStatus{handedOver, stored, acknowledged}},

	"stored": {withInbox, func(p *pair, flags uint8) {
		p.send(flags)
	}, []frame.ReceiptStatus{stored}},

	"stored, acknowledged": {withInbox, func(p *pair, flags uint8) {
		p.send(flags)
		b := p.comes()
		b.acks(b.took())
	}, []frame.ReceiptStatus{stored, acknowledged}},

	"expired unread": {withShortInbox, func(p *pair, flags uint8) {
		p.send(flags)
		time.Sleep(3 * time.Minute)
	}, []frame.ReceiptStatus{stored, expired}},

	"dropped for a newer one": {withShortInbox, func(p *pair, flags uint8) {
		p.send(flags)
		carol := p.login(identity(p.t, 3), formExtended)
		carol.send(carol.sealed(p.bob, 2, 0, ""))
	}, []frame.ReceiptStatus{stored, refused}},
}

// TestStatuses: what a sender hears of a message, in order and once each, and of
// one for which it wants no receipt, or that has no id, nothing.
func TestStatuses(t *testing.T) {
	for name, c := range courses {
		t.Run(name, func(t *testing.T) {
			bubble(t, c.set, func(t *testing.T, r *rig) {
				p := &pair{r, r.login(identity(t, 1), formExtended), identity(t, 2)}
				c.run(p, frame.FlagReceipt)
				p.alice.hears(1, c.want...)
				requireBalance(t, r.server)
			})
			bubble(t, c.set, func(t *testing.T, r *rig) {
				p := &pair{r, r.login(identity(t, 1), formExtended), identity(t, 2)}
				c.run(p, 0)
				p.alice.nothing()
			})
		})
	}
}

// TestReceiptContents: what stands behind the statuses.
func TestReceiptContents(t *testing.T) {
	for name, want := range map[string]frame.Receipt{
		"expired unread":          {Status: expired, Code: frame.CodeExpired, Reason: "expired"},
		"dropped for a newer one": {Status: refused, Code: frame.CodeInboxFull, Reason: "inbox-full"},
	} {
		bubble(t, courses[name].set, func(t *testing.T, r *rig) {
			p := &pair{r, r.login(identity(t, 1), formExtended), identity(t, 2)}
			courses[name].run(p, frame.FlagReceipt)
			p.alice.receipt(1)
			got := p.alice.receipt(1)
			want.ID = got.ID
			require.Equal(t, want, got)
		})
	}
	bubble(t, withInbox, func(t *testing.T, r *rig) {
		p := &pair{r, r.login(identity(t, 1), formExtended), identity(t, 2)}
		courses["acknowledged"].run(p, frame.FlagReceipt)
		p.alice.receipt(1)
		requireProof(t, p, p.alice.receipt(1))
	})
}

// requireProof checks a receipt as a client does.
func requireProof(t *testing.T, p *pair, got frame.Receipt) {
	t.Helper()
	require.Equal(t, acknowledged, got.Status)
	require.Equal(t, [32]byte(p.bob.Public()), got.Recipient)
	sender := p.alice.id.Public()
	signed := append([]byte("sotto ack v1\x00"), sender[:]...)
	require.NoError(t, crypto.Verify(got.Recipient, append(signed, got.ID[:]...), &got.Signature))
}

// TestRepeats: what comes again, in the session or the next one, is answered with
// the receipt that it had, and not delivered twice.
func TestRepeats(t *testing.T) {
	for name, c := range courses {
		for _, where := range []string{"in the session", "in the next"} {
			t.Run(name+"/"+where, func(t *testing.T) {
				bubble(t, c.set, func(t *testing.T, r *rig) {
					p := &pair{r, r.login(identity(t, 1), formExtended), identity(t, 2)}
					c.run(p, frame.FlagReceipt)
					p.alice.hears(1, c.want...)
					if where == "in the next" {
						p.alice.leave()
						p.alice = r.login(p.alice.id, formExtended)
					}
					before := r.server.Stats()
					p.send(0)
					p.alice.nothing()
					p.send(frame.FlagReceipt)
					p.alice.hears(1, c.want[len(c.want)-1])
					after := r.server.Stats()
					require.Equal(t, before.Accepted, after.Accepted)
					require.Equal(t, uint64(2), after.Ignored["brep: repeat"])
				})
			})
		}
	}
}

// TestRepeatProof: the receipt that comes again has the recipient's signature.
func TestRepeatProof(t *testing.T) {
	bubble(t, withInbox, func(t *testing.T, r *rig) {
		p := &pair{r, r.login(identity(t, 1), formExtended), identity(t, 2)}
		courses["acknowledged"].run(p, frame.FlagReceipt)
		p.alice.hears(1, handedOver, acknowledged)
		p.send(frame.FlagReceipt)
		requireProof(t, p, p.alice.receipt(1))
	})
}

// TestAwayMeanwhile: what became of a message while its sender was away is what a
// repeat is answered with.
func TestAwayMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*rig)
		run  func(p *pair, b *peer)
		want frame.ReceiptStatus
	}{
		"acknowledged": {withInbox, func(_ *pair, b *peer) { b.acks(b.took()) }, acknowledged},
		"stored":       {withInbox, func(_ *pair, b *peer) { time.Sleep(time.Minute) }, stored},
		"gone":         {withInbox, func(_ *pair, b *peer) { b.leave() }, stored},
		"expired": {withShortInbox, func(_ *pair, b *peer) {
			b.leave()
			time.Sleep(5 * time.Minute)
		}, expired},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, c.set, func(t *testing.T, r *rig) {
				p := &pair{r, r.login(identity(t, 1), formExtended), identity(t, 2)}
				b := p.comes()
				p.send(frame.FlagReceipt)
				p.alice.hears(1, handedOver)
				p.alice.leave()
				c.run(p, b)
				synctest.Wait()
				p.alice = r.login(p.alice.id, formExtended)
				p.send(frame.FlagReceipt)
				p.alice.hears(1, c.want)
			})
		})
	}
}

// TestLesserStatuses: what is known already is not followed by less, in whatever
// order the relay learns of it; but what was refused or has expired stands apart.
func TestLesserStatuses(t *testing.T) {
	tell := map[frame.ReceiptStatus]func(*session, relay.ID){
		handedOver: func(s *session, id relay.ID) { s.answer(id, frame.FlagReceipt, relay.Outcome{Status: relay.Delivered}) },
		stored: func(s *session, id relay.ID) {
			s.Settled(relay.Receipt{ID: id, Flags: frame.FlagReceipt, Outcome: relay.Outcome{Status: relay.Stored}})
		},
		acknowledged: func(s *session, id relay.ID) { s.Notify(relay.Notice{Kind: relay.NoticeAcknowledged, ID: id}) },
		refused: func(s *session, id relay.ID) {
			s.Notify(relay.Notice{Kind: relay.NoticeDropped, ID: id, Flags: frame.FlagReceipt})
		},
		expired: func(s *session, id relay.ID) {
			s.Notify(relay.Notice{Kind: relay.NoticeExpired, ID: id, Flags: frame.FlagReceipt})
		},
	}
	bubble(t, nil, func(t *testing.T, r *rig) {
		p := &pair{r, r.login(identity(t, 1), formExtended), identity(t, 2)}
		id := byte(0)
		for first := range tell {
			for second := range tell {
				id++
				f := p.alice.sealed(p.bob, id, 0, "")
				s := r.session(0)
				require.False(t, s.isRepeat(f))
				want := []frame.ReceiptStatus{first}
				if first > acknowledged || second >= first {
					want = append(want, second)
				}
				tell[first](s, f.ID)
				tell[second](s, f.ID)
				p.alice.hears(id, want...)
			}
		}
	})
}

// TestRepeatOnTheWay: one that comes again while the store has not answered is
// answered when it does, where it came last.
func TestRepeatOnTheWay(t *testing.T) {
	var store *later
	bubble(t, func(r *rig) {
		store = &later{inbox.NewMemory(nil), make(chan func(), 1)}
		r.server.Inbox = store
	}, func(t *testing.T, r *rig) {
		p := &pair{r, r.login(identity(t, 1), formExtended), identity(t, 2)}
		p.send(frame.FlagReceipt)
		synctest.Wait()
		first := p.alice
		first.leave()
		p.alice = r.login(first.id, formExtended)
		p.send(frame.FlagReceipt)
		p.alice.nothing()
		(<-store.puts)()
		p.alice.hears(1, stored)

		// From then on whoever is there is told.
		p.alice.leave()
		p.alice = r.login(first.id, formExtended)
		b := p.comes()
		b.acks(b.took())
		p.alice.hears(1, acknowledged)
	})
}

// TestNoRepeats: what is another message, or was not taken, or is long past.
func TestNoRepeats(t *testing.T) {
	bubble(t, unmetered, func(t *testing.T, r *rig) {
		p := &pair{r, r.login(identity(t, 1), formExtended), identity(t, 2)}
		b := p.comes()
		times := 0
		delivered := func(f *frame.Brep) {
			t.Helper()
			p.alice.send(f)
			got := b.next()
			require.Equal(t, f.Payload, got.Payload)
			require.Equal(t, f.ID, got.ID)
			times++
		}
		sealed := func(id byte, text string) *frame.Brep { return p.alice.sealed(p.bob, id, 0, text) }
		key := p.bob.Public()
		unsigned := func(text string) *frame.Brep {
			return withID(p.alice.frame(frame.TypeData, key[:], []byte(text)), 1, 0)
		}

		delivered(sealed(1, "one"))
		delivered(sealed(2, "one")) // another id
		delivered(sealed(1, "two")) // another signature
		delivered(unsigned("one"))  // none, and another payload
		delivered(unsigned("two"))
		delivered(sealed(0, "none")) // no id is no id
		delivered(sealed(0, "none"))

		delivered(sealed(3, "three"))
		time.Sleep(rememberFor - 1)
		p.alice.send(sealed(3, "three"))
		b.nothing()
		time.Sleep(time.Nanosecond)
		delivered(sealed(3, "three"))

		delivered(sealed(4, "four"))
		for i := range rememberMax {
			f := unsigned("")
			f.ID = [16]byte{1, byte(i >> 8), byte(i)}
			if i == rememberMax-1 {
				p.alice.send(sealed(4, "four"))
				b.nothing()
			}
			delivered(f)
		}
		delivered(sealed(4, "four"))

		legacy := r.login(identity(t, 3), formLegacy)
		for range 2 {
			legacy.put(0, withID(legacy.frame(frame.TypeData, key[:], []byte("v1")), 1, 1).Append(nil))
			require.Equal(t, "v1", b.text())
		}
		require.EqualValues(t, 2, r.server.Stats().Ignored["brep: repeat"])
	})
}

// TestRefusedIsTriedAgain: what was refused at the door has not been taken.
func TestRefusedIsTriedAgain(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		p := &pair{r, r.login(identity(t, 1), formExtended), identity(t, 2)}
		for range 3 {
			p.send(frame.FlagReceipt)
			p.alice.hears(1, refused)
		}
		b := p.comes()
		p.send(frame.FlagReceipt)
		p.alice.hears(1, handedOver)
		p.send(frame.FlagReceipt)
		p.alice.hears(1, handedOver)
		b.took()
		b.nothing()
	})
}

// TestRefusedUnheard: who was cut off before he could hear that a message was refused
// hears it when he sends it again. If it were taken then, it would come after what he
// sent behind it.
func TestRefusedUnheard(t *testing.T) {
	for _, slow := range []bool{false, true} {
		bubble(t, func(r *rig) {
			withInbox(r)
			r.server.Limits.Dialects = map[string]relay.DialectLimits{"brep": {InboxMessages: 1}}
			if slow {
				r.server.Inbox = &later{r.server.Inbox, make(chan func(), 10)}
			}
		}, func(t *testing.T, r *rig) {
			p := &pair{r, r.login(identity(t, 1), formExtended), identity(t, 2)}
			const receipt = frame.FlagReceipt
			send := func(id byte) {
				p.alice.send(p.alice.sealed(p.bob, id, receipt, ""))
				synctest.Wait()
				if l, ok := r.server.Inbox.(*later); ok && len(l.puts) > 0 {
					(<-l.puts)()
				}
			}
			send(1)
			send(2) // is refused
			b := p.comes()
			require.EqualValues(t, 1, b.took().ID[0])
			send(3)
			p.alice.leave() // without having read any of that
			p.alice = r.login(p.alice.id, formExtended)
			for i, want := range []frame.ReceiptStatus{stored, refused, handedOver} {
				send(byte(i + 1))
				p.alice.hears(byte(i+1), want)
			}
			require.EqualValues(t, 3, b.took().ID[0])
			b.nothing()
			send(2) // who has heard it may try again
			p.alice.hears(2, handedOver)
		})
	}
}

// TestSharedSenders: with two sessions of one key, both hear what becomes of a
// message later.
func TestSharedSenders(t *testing.T) {
	bubble(t, func(r *rig) {
		withInbox(r)
		r.InUse = relay.Share
	}, func(t *testing.T, r *rig) {
		p := &pair{r, r.login(identity(t, 1), formExtended), identity(t, 2)}
		second := r.login(p.alice.id, formExtended)
		b := p.comes()
		p.send(frame.FlagReceipt)
		b.acks(b.took())
		p.alice.hears(1, handedOver, acknowledged)
		second.hears(1, acknowledged)
		second.send(second.sealed(p.bob, 1, frame.FlagReceipt, "hello"))
		second.hears(1, acknowledged)
		b.nothing()
	})
}

// TestManyReceipts: a sender hears of all that is stored when a recipient goes who
// has acknowledged nothing.
func TestManyReceipts(t *testing.T) {
	bubble(t, unmetered, func(t *testing.T, r *rig) {
		p := &pair{r, r.login(identity(t, 1), formExtended), identity(t, 2)}
		frozen := p.comes()
		const n = 600 // more than a window
		counts := make(map[frame.ReceiptStatus]int)
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				f, err := p.alice.Receive()
				if err != nil {
					return
				}
				got, err := frame.DecodeReceipt(f.Payload)
				require.NoError(t, err)
				counts[got.Status]++
			}
		})
		for i := range n {
			f := p.alice.sealed(p.bob, 0, frame.FlagReceipt, "")
			f.ID = [16]byte{1, byte(i >> 8), byte(i)}
			p.alice.send(f)
		}
		synctest.Wait()
		frozen.leave()
		p.alice.leave()
		wg.Wait()
		require.Equal(t, map[frame.ReceiptStatus]int{handedOver: n, stored: n}, counts)
		requireBalance(t, r.server)
	})
}
