package brep

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
)

func unmetered(r *rig) {
	r.server.Limits = relay.MaxLimits()
	r.server.Inbox = inbox.NewMemory(nil)
}

// TestForTheAbsent: what waited comes right after the confirmation, in order, and
// before what is new.
func TestForTheAbsent(t *testing.T) {
	for form, name := range formNames {
		t.Run(name, func(t *testing.T) {
			bubble(t, unmetered, func(t *testing.T, r *rig) {
				alice, bob := r.login(identity(t, 1), formExtended), identity(t, 2)
				const n = 900 // of the 1,000 that one sender may have there
				for i := range n {
					alice.data(bob, strconv.Itoa(i))
				}
				synctest.Wait()
				b := r.login(bob, uint8(form)) // which reads the confirmation first
				alice.data(bob, strconv.Itoa(n))
				for i := range n + 1 {
					require.Equal(t, strconv.Itoa(i), b.text())
				}
				synctest.Wait()
				held, _, err := r.server.Inbox.Totals(t.Context())
				require.NoError(t, err)
				require.Zero(t, held)
				requireBalance(t, r.server)
			})
		})
	}
}

func requireBalance(t testing.TB, s *relay.Server) {
	t.Helper()
	st := s.Stats()
	require.EqualValues(t, st.Accepted+st.Found, st.Delivered+st.Expired+st.Dropped+uint64(st.Held), "%+v", st)
}

// TestQuota: the 1,001st message of one sender is refused.
func TestQuota(t *testing.T) {
	bubble(t, unmetered, func(t *testing.T, r *rig) {
		alice, key := r.login(identity(t, 1), formExtended), identity(t, 2).Public()
		for i := range 1001 {
			f := alice.frame(frame.TypeData, key[:])
			f.Flags = frame.FlagReceipt
			binary.BigEndian.PutUint32(f.ID[:], uint32(i+1))
			alice.send(f)
			got, err := frame.DecodeReceipt(alice.next().Payload)
			require.NoError(t, err)
			want := frame.Receipt{ID: f.ID, Status: frame.ReceiptStored}
			if i == 1000 {
				want.Status, want.Code, want.Reason = frame.ReceiptRefused, frame.CodeQuota, "quota"
			}
			require.Equal(t, want, got)
		}
	})
}

// TestHandOver: HS-08. Sessions of one key take over from one another while it is
// written to. Read one after the other, they have every message once, in order.
func TestHandOver(t *testing.T) {
	for form, name := range formNames {
		t.Run(name, func(t *testing.T) {
			bubble(t, unmetered, func(t *testing.T, r *rig) {
				alice, bob := r.login(identity(t, 1), formExtended), identity(t, 2)
				const messages, devices = 600, 10
				var wg sync.WaitGroup
				wg.Go(func() {
					for i := range messages {
						alice.data(bob, strconv.Itoa(i))
						if i%7 == 0 {
							time.Sleep(time.Millisecond)
						}
					}
				})
				var got [devices][]int
				for d := range devices {
					b := r.login(bob, uint8(form))
					wg.Go(func() {
						for {
							f, err := b.Receive()
							if err != nil {
								return
							}
							if f.Type == frame.TypeData {
								i, err := strconv.Atoi(string(f.Payload[recipientSize:]))
								require.NoError(t, err)
								got[d] = append(got[d], i)
							}
							if d%3 == 1 { // some are slow
								time.Sleep(time.Millisecond / 2)
							}
						}
					})
					time.Sleep(time.Duration(d) * 2 * time.Millisecond)
				}
				time.Sleep(time.Minute)
				require.NoError(t, r.server.Close())
				wg.Wait()
				next := 0
				for d := range devices {
					for _, i := range got[d] {
						require.Equal(t, next, i)
						next++
					}
				}
				require.Equal(t, messages, next)
			})
		})
	}
}

// TestTakeoverLosesNothing: the older session never reads; all comes to the newer
// one.
func TestTakeoverLosesNothing(t *testing.T) {
	bubble(t, unmetered, func(t *testing.T, r *rig) {
		alice, bob := r.login(identity(t, 1), formExtended), identity(t, 2)
		frozen := r.login(bob, formLegacy)
		const sent = 900 // more than a pipe holds
		for i := range sent {
			alice.data(bob, strconv.Itoa(i))
		}
		synctest.Wait()
		b := r.login(bob, formExtended)
		first, err := strconv.Atoi(b.text())
		require.NoError(t, err)
		for i := first + 1; i < sent; i++ {
			require.Equal(t, strconv.Itoa(i), b.text())
		}
		// What came before is in the frozen session's pipe.
		for i := range first {
			require.Equal(t, strconv.Itoa(i), frozen.text())
		}
		frozen.closed()
	})
}

// TestFrozenReader: one that does not read holds nobody up, and loses nothing.
func TestFrozenReader(t *testing.T) {
	bubble(t, unmetered, func(t *testing.T, r *rig) {
		alice, bob, carol := r.login(identity(t, 1), formExtended), identity(t, 2), r.login(identity(t, 3), formLegacy)
		frozen := r.login(bob, formExtended)
		const n = 900
		big := make([]byte, 4<<10)
		start := time.Now()
		for i := range n {
			key := bob.Public()
			alice.send(alice.frame(frame.TypeData, key[:], fmt.Appendf(nil, "%06d", i), big))
			alice.data(carol.id, strconv.Itoa(i))
			require.Equal(t, strconv.Itoa(i), carol.text())
		}
		require.Zero(t, time.Since(start), "nobody waited")
		for i := range n {
			f := frozen.next()
			require.Equal(t, fmt.Sprintf("%06d", i), string(f.Payload[recipientSize:][:6]))
		}
		synctest.Wait()
		requireBalance(t, r.server)
	})
}

// TestShutdown tells extended sessions first, then closes with 1001.
func TestShutdown(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		extended, legacy := r.login(identity(t, 1), formExtended), r.login(identity(t, 2), formLegacy)
		var wg sync.WaitGroup
		wg.Go(func() {
			away := extended.next()
			require.Equal(t, frame.TypeGoAway, away.Type)
			hint, err := frame.DecodeGoAway(away.Payload)
			require.NoError(t, err)
			require.LessOrEqual(t, hint.After, comeBack)
			for _, p := range []*peer{extended, legacy} {
				code, err := p.closed()
				require.EqualValues(t, 1001, code)
				var re *RelayError
				require.True(t, errors.As(err, &re) && !re.Final() && re.Code == frame.CodeGoingAway)
				require.Equal(t, p == extended, re.RetryAfter > 0)
			}
		})
		require.NoError(t, r.server.Shutdown(context.Background()))
		wg.Wait()
	})
}
