package adversary

import (
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/transport"
)

// Hundreds of connections that stop at every stage, or go on a byte at a time,
// are gone by a deadline, and honest clients talk meanwhile (DO-01, HS-04, FR-15).
func TestSlowLoris(t *testing.T) {
	login := (&frame.Brep{Type: frame.TypeHandshake, Payload: make([]byte, 97)}).Append(nil)
	half := wsFrame(wsBinary, login)[:100]
	// trickle writes a byte at a time until it is stopped.
	trickle := func(r *raw, b []byte, every time.Duration) {
		for i := range b {
			if _, err := r.Write(b[i : i+1]); err != nil {
				return
			}
			time.Sleep(every)
		}
	}
	for name, attack := range map[string]func(t *testing.T, r *raw){
		"says nothing":       func(*testing.T, *raw) {},
		"half a header":      func(_ *testing.T, r *raw) { _, _ = io.WriteString(r, upgrade[:60]) },
		"a header in bytes":  func(_ *testing.T, r *raw) { go trickle(r, []byte(upgrade), time.Second) },
		"never answers":      func(_ *testing.T, r *raw) { r.upgrade() },
		"half an answer":     func(_ *testing.T, r *raw) { _, _ = r.upgrade().Write(half) },
		"an answer in bytes": func(_ *testing.T, r *raw) { go trickle(r.upgrade(), half, time.Second) },
		"pings before the login": func(_ *testing.T, r *raw) {
			go trickle(r.upgrade(), wsFrame(wsPing, make([]byte, 100)), 50*time.Millisecond)
		},
		"half a message of many": func(_ *testing.T, r *raw) {
			_, _ = r.upgrade().Write(append(wsFrame(0x02, make([]byte, 100)), wsHeader(0x80, 500)...))
		},
		"half a message, logged in": func(t *testing.T, r *raw) {
			_, _ = r.upgrade().login(identity(t, mallory)).Write(append(wsHeader(wsBinary, 4<<20), make([]byte, 1000)...))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				w := r.web()
				a, b := w.client(identity(t, alice)), w.client(identity(t, bob))
				start := time.Now()
				var wg sync.WaitGroup
				for i := range size(200, 2000) {
					time.Sleep(5 * time.Millisecond)
					wg.Go(func() {
						c := w.raw(fmt.Sprintf("10.0.%d.%d", i/200, i%200))
						if name == "half a message, logged in" && i > 0 {
							return // one key has one session
						}
						began := time.Now()
						attack(t, c)
						c.closed()
						assert.LessOrEqual(t, time.Since(began), 12*time.Second)
					})
					if i%20 == 0 {
						sent := time.Now()
						exchange(t, a, b, identity(t, bob).Public(), "hello")
						assert.Zero(t, time.Since(sent), "nobody waits for a stranger")
					}
				}
				synctest.Wait()
				wg.Wait()
				t.Logf("all gone after %v", time.Since(start))
				time.Sleep(2 * time.Second)
				synctest.Wait()
				assert.Equal(t, 2, r.server.Stats().Sessions)
			})
		})
	}
}

// A member who stops reading, or reads a byte a second, costs the relay no more
// than an outbox, holds up nobody and loses nothing (DO-02 to DO-04).
func TestSlowReader(t *testing.T) {
	for name, read := range map[string]func(*raw){
		"stops": func(*raw) {},
		"a byte a second": func(r *raw) {
			for b := make([]byte, 1); ; {
				time.Sleep(time.Second)
				if _, err := r.Read(b); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				w := r.web()
				a, b := w.client(identity(t, alice)), w.client(identity(t, bob))
				m := identity(t, mallory)
				slow := w.raw("192.0.2.66").upgrade().login(m)
				go read(slow)
				const n, each = 900, 4 << 10
				body := string(make([]byte, each))
				for i := range n {
					time.Sleep(10 * time.Millisecond)
					require.NoError(t, a.Send(t.Context(), dataFrame(m.Public(), body)))
					if i%100 == 0 {
						sent := time.Now()
						exchange(t, a, b, identity(t, bob).Public(), "hello")
						assert.Zero(t, time.Since(sent), "nobody waits for a slow reader")
					}
				}
				for s := range r.server.Sessions() {
					assert.LessOrEqual(t, s.Waiting, 1<<20+each+1000, "bytes in an outbox")
				}
				time.Sleep(5 * time.Minute)
				slow.Close()
				time.Sleep(time.Minute)
				st := r.server.Stats()
				assert.Zero(t, st.Dropped, "%v", st.DroppedBy)

				// All of it but what was on the way is there.
				again := connect(t, r.from("192.0.2.66"), m)
				got := 0
				for range int(st.Held) {
					f, err := again.Receive()
					require.NoError(t, err)
					require.Len(t, f.Payload, 32+each)
					got++
				}
				assert.Equal(t, n, got+int(st.Delivered)-n/100)
				assert.Greater(t, got, n/2)
				require.NoError(t, again.Close())
			})
		})
	}
}

// A member whose connection takes nothing is cut when a write has made no
// progress for 30 s, and his place is free (DO-04).
func TestStuckReaderIsCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		a := connect(t, r.from("198.51.100.1"), identity(t, alice))
		stuck := r.from("192.0.2.66")
		m := identity(t, mallory)
		c := connect(t, stuck, m)
		for range 300 {
			require.NoError(t, a.Send(t.Context(), dataFrame(m.Public(), string(make([]byte, 4<<10)))))
		}
		time.Sleep(29 * time.Second)
		synctest.Wait()
		assert.Equal(t, 2, r.server.Stats().Sessions)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.Equal(t, 1, r.server.Stats().Sessions)
		for {
			_, err := c.Receive()
			if err != nil {
				break
			}
		}
	})
}

// Strangers come, as fast as they are let in, and stay as long as they may. The
// relay holds no more of them than its limit says.
func TestStrangersAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.server.Limits.Unready = 300 // 10,000 by default: five times this test's patience
		var conns []transport.Conn
		turned := 0
		for i := range 1000 {
			time.Sleep(3 * time.Millisecond)
			c := r.from(fmt.Sprintf("10.0.%d.%d", i/250, i%250))
			if _, _, err := c.Read(); err != nil {
				turned++
				continue
			}
			conns = append(conns, c)
		}
		assert.Len(t, conns, 300)
		assert.Equal(t, 700, turned)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Zero(t, r.server.Stats().Sessions)
		connect(t, r.from("198.51.100.1"), identity(t, alice)).Close()
	})
}
