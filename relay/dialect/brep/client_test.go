package brep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
)

// A fakeRelay is the other end of a Client's connection, by hand.
type fakeRelay struct {
	t    testing.TB
	conn transport.Conn
}

func (r *fakeRelay) write(f *frame.Brep) {
	r.t.Helper()
	_, err := r.conn.Write(transport.Binary, [][]byte{f.Append(nil)})
	require.NoError(r.t, err)
}

func (r *fakeRelay) read() frame.Brep {
	r.t.Helper()
	kind, msg, err := r.conn.Read()
	require.NoError(r.t, err)
	require.Equal(r.t, transport.Binary, kind)
	f, err := frame.DecodeBrep(bytes.Clone(msg))
	require.NoError(r.t, err)
	return f
}

// fakeSession returns a Client that is logged in at a fakeRelay.
func fakeSession(t testing.TB, form uint8, o ClientOptions, pipes pipe.Options) (*Client, *fakeRelay) {
	t.Helper()
	near, far := pipes.New()
	r := &fakeRelay{t, far}
	acceptor, err := handshake.NewAcceptor(&handshake.AcceptorConfig{Identity: identity(t, relaySeed)})
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		challenge := acceptor.Challenge()
		if form == formLegacy {
			challenge.Sender = [32]byte{}
		}
		r.write(challenge)
		answer := r.read()
		confirmation, err := acceptor.Receive(&answer)
		require.NoError(t, err)
		r.write(confirmation)
	})
	o.Identity, o.AllowLegacy = identity(t, 1), form == formLegacy
	c, err := Connect(context.Background(), near, &o)
	require.NoError(t, err)
	wg.Wait()
	t.Cleanup(func() { require.NoError(t, c.Close()); _ = far.Close(0, "") })
	return c, r
}

// TestReceiveEnds: the error says what the relay said, and the conn is closed.
func TestReceiveEnds(t *testing.T) {
	errorFrame := func(e frame.Error) *frame.Brep {
		return &frame.Brep{Type: frame.TypeError, Flags: e.Flags(), Payload: e.Append(nil)}
	}
	closes := func(code uint16, reason string) func(*fakeRelay) {
		return func(r *fakeRelay) { _ = r.conn.Close(code, reason) }
	}
	for _, c := range []struct {
		name  string
		form  uint8
		relay func(r *fakeRelay)
		want  error // a *RelayError has to be equal
		final bool
	}{
		{"ERROR, then a close", formExtended, func(r *fakeRelay) {
			r.write(errorFrame(frame.Error{Code: frame.CodeReplaced, Sentence: "a newer login"}))
			closes(1008, "whatever")(r)
		}, &RelayError{Code: frame.CodeReplaced, Reason: "a newer login"}, true},
		{"ERROR, then the end of a stream", formExtended, func(r *fakeRelay) {
			r.write(errorFrame(frame.Error{Code: frame.CodeRateLimited}))
			closes(0, "")(r)
		}, &RelayError{Code: frame.CodeRateLimited, Reason: ""}, false},
		{"ERROR, then something else", formExtended, func(r *fakeRelay) {
			r.write(errorFrame(frame.Error{Code: frame.CodeDenied}))
			r.write(&frame.Brep{Type: frame.TypePong})
			closes(1013, "")(r)
		}, &RelayError{Code: frame.CodeOverloaded, Reason: ""}, false},
		{"ERROR about a frame", formExtended, func(r *fakeRelay) {
			r.write(errorFrame(frame.Error{Code: frame.CodeDenied, ID: [16]byte{1}}))
			closes(1001, "going-away")(r)
		}, &RelayError{Code: frame.CodeGoingAway, Reason: "going-away"}, false},
		{"no end of a sentence", formExtended, func(r *fakeRelay) {
			r.write(errorFrame(frame.Error{Code: frame.CodeDenied, Sentence: strings.Repeat("é", 1000)}))
			closes(1008, "")(r)
		}, &RelayError{Code: frame.CodeDenied, Reason: strings.Repeat("é", 61)}, true},
		{"ERROR that is none", formExtended, func(r *fakeRelay) {
			r.write(&frame.Brep{Type: frame.TypeError, Payload: []byte{1}})
			closes(1008, "")(r)
		}, &RelayError{Code: frame.CodeDenied, Reason: ""}, true},
		{"1008 with a code's name", formLegacy, closes(1008, "rate-limited"), &RelayError{Code: frame.CodeRateLimited, Reason: "rate-limited"}, false},
		{"1008", formLegacy, closes(1008, "replaced by a newer login"), &RelayError{Code: frame.CodeDenied, Reason: "replaced by a newer login"}, true},
		{"1002", formLegacy, closes(1002, ""), &RelayError{Code: frame.CodeMalformed, Reason: ""}, false},
		{"1003", formLegacy, closes(1003, ""), &RelayError{Code: frame.CodeMalformed, Reason: ""}, false},
		{"1009", formLegacy, closes(1009, ""), &RelayError{Code: frame.CodeTooLarge, Reason: ""}, false},
		{"1011", formLegacy, closes(1011, ""), &RelayError{Code: frame.CodeInternal, Reason: ""}, false},
		{"1000", formLegacy, closes(1000, ""), new(transport.CloseError), false},
		{"malformed", formExtended, func(r *fakeRelay) {
			_, err := r.conn.Write(0, [][]byte{make([]byte, 200)})
			require.NoError(r.t, err)
		}, frame.ErrMalformed, false},
		{"text", formExtended, func(r *fakeRelay) {
			_, err := r.conn.Write(transport.Text, [][]byte{make([]byte, 200)})
			require.NoError(r.t, err)
		}, errText, false},
		{"a second handshake", formExtended, func(r *fakeRelay) {
			r.write(&frame.Brep{Type: frame.TypeHandshake, Payload: make([]byte, 32)})
		}, errHandshakeAgain, false},
		{"PING from a legacy relay", formLegacy, func(r *fakeRelay) {
			r.write(&frame.Brep{Type: frame.TypePing, Payload: make([]byte, 8)})
		}, errNotLegacy, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, r := fakeSession(t, c.form, ClientOptions{}, pipe.Options{})
				c.relay(r)
				var err error
				for err == nil {
					_, err = client.Receive()
				}
				var re *RelayError
				if want, ok := c.want.(*RelayError); ok {
					require.Equal(t, want, err)
					require.Equal(t, c.final, want.Final())
				} else if _, ok := c.want.(*transport.CloseError); ok {
					var ce *transport.CloseError
					require.ErrorAs(t, err, &ce)
					require.False(t, errors.As(err, &re))
				} else {
					require.ErrorIs(t, err, c.want)
				}
				require.Equal(t, err, client.Send(t.Context(), &frame.Brep{Type: frame.TypeData}))
				_, again := client.Receive()
				require.Equal(t, err, again)
			})
		})
	}
}

// TestTooLargeForUs: the client goes on after a frame that it cannot read.
func TestTooLargeForUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := fakeSession(t, formExtended, ClientOptions{}, pipe.Options{Limit: 300})
		r.write(&frame.Brep{Type: frame.TypeData, Payload: make([]byte, 500)})
		r.write(&frame.Brep{Type: frame.TypeData, Payload: []byte("next")})
		_, err := c.Receive()
		require.Equal(t, transport.ErrTooLarge, err)
		f, err := c.Receive()
		require.NoError(t, err)
		require.Equal(t, "next", string(f.Payload))
	})
}

func TestSendForms(t *testing.T) {
	for form, name := range formNames {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, r := fakeSession(t, uint8(form), ClientOptions{}, pipe.Options{})
				f := frame.Brep{Type: frame.TypeData, Flags: 5, ID: [16]byte{6}, Sender: [32]byte{7}, Payload: []byte("x")}
				before := f
				require.NoError(t, c.Send(t.Context(), &f))
				require.Equal(t, before, f)
				want := f
				want.Sender = identity(t, 1).Public()
				if form == int(formLegacy) {
					want.Flags, want.ID = 0, [16]byte{}
				}
				require.Equal(t, want, r.read())

				err := c.Send(t.Context(), &f, &frame.Brep{Type: frame.TypeSealed})
				if form == int(formLegacy) {
					require.Equal(t, ErrExtendedOnly, err)
				} else {
					require.NoError(t, err)
					require.Equal(t, frame.TypeData, r.read().Type)
					require.Equal(t, frame.TypeSealed, r.read().Type)
				}
				require.NoError(t, c.Send(t.Context()))
				require.NoError(t, c.Send(t.Context(), &frame.Brep{Type: frame.TypeNodeInfo}))
				require.Equal(t, frame.TypeNodeInfo, r.read().Type, "all or none")
			})
		})
	}
}

// TestSendTogether: frames of one call stay together, in order, with many senders
// and a relay that reads slowly; and one write takes many.
func TestSendTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := fakeSession(t, formExtended, ClientOptions{}, pipe.Options{Messages: 3})
		const senders, rounds, run = 8, 30, 5
		var wg sync.WaitGroup
		for s := range senders {
			wg.Go(func() {
				for i := range rounds {
					var fs []*frame.Brep
					for k := range run {
						fs = append(fs, &frame.Brep{Type: frame.TypeData, Payload: []byte{byte(s), byte(i), byte(k)}})
					}
					require.NoError(t, c.Send(t.Context(), fs...))
				}
			})
		}
		var next [senders]byte
		for range senders * rounds {
			first := r.read().Payload
			require.Equal(t, []byte{first[0], next[first[0]], 0}, first)
			next[first[0]]++
			for k := 1; k < run; k++ {
				require.Equal(t, []byte{first[0], first[1], byte(k)}, r.read().Payload)
			}
		}
		wg.Wait()
	})
}

// TestSendBounded: a relay that reads nothing makes senders wait, and their
// contexts end that; what fails was not sent.
func TestSendBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := fakeSession(t, formExtended, ClientOptions{}, pipe.Options{Bytes: 1})
		f := &frame.Brep{Type: frame.TypeData, Payload: make([]byte, 64<<10)}
		sent := 0
		for {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err := c.Send(ctx, f)
			cancel()
			if err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				break
			}
			sent++
		}
		require.InDelta(t, sendQueueBytes/f.Size(), sent, 2)

		var wg sync.WaitGroup
		wg.Go(func() { require.NoError(t, c.Send(t.Context(), f)) }) // until there is room
		for range sent + 1 {
			require.Len(t, r.read().Payload, 64<<10)
		}
		wg.Wait()
		huge := &frame.Brep{Type: frame.TypeData, Payload: make([]byte, 2*sendQueueBytes)}
		require.NoError(t, c.Send(t.Context(), huge), "more than the bound passes alone")
		require.Len(t, r.read().Payload, 2*sendQueueBytes)
	})
}

// TestStuckRelay: one that takes nothing for 30 s has lost its client.
func TestStuckRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := fakeSession(t, formExtended, ClientOptions{}, pipe.Options{Messages: 1})
		start := time.Now()
		f := &frame.Brep{Type: frame.TypeData}
		require.NoError(t, c.Send(t.Context(), f, f))
		_, err := c.Receive()
		require.Equal(t, errSlow, err)
		require.Equal(t, errSlow, c.Send(t.Context(), f))
		require.Equal(t, writeTimeout, time.Since(start))
	})
}

// TestEndsWaiting: the end of the connection ends the waiting for room at once,
// whoever notices it.
func TestEndsWaiting(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*Client, *fakeRelay)
	}{
		{"we close", func(c *Client, _ *fakeRelay) { go c.Close() }},
		{"the writer notices", func(_ *Client, r *fakeRelay) { _ = r.conn.Close(1008, "denied") }},
		{"Receive notices", func(c *Client, r *fakeRelay) {
			_, err := r.conn.Write(transport.Text, [][]byte{nil})
			require.NoError(r.t, err)
			_, err = c.Receive()
			require.Equal(r.t, errText, err)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, r := fakeSession(t, formExtended, ClientOptions{}, pipe.Options{Messages: 1})
				f := &frame.Brep{Type: frame.TypeData, Payload: make([]byte, sendQueueBytes)}
				start := time.Now()
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() {
						for client.Send(context.Background(), f) == nil {
						}
					})
				}
				synctest.Wait()
				c.end(client, r)
				wg.Wait()
				require.Zero(t, time.Since(start))
			})
		})
	}
}

// TestClose writes what is queued, for a second at most.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := fakeSession(t, formExtended, ClientOptions{}, pipe.Options{Messages: 1})
		f := &frame.Brep{Type: frame.TypeData, Payload: []byte("last")}
		require.NoError(t, c.Send(t.Context(), f, f, f))
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 3 {
				require.Equal(t, "last", string(r.read().Payload))
			}
			require.EqualValues(t, transport.CloseNormal, closeOf(t, r.conn))
		})
		require.NoError(t, c.Close())
		require.Equal(t, net.ErrClosed, c.Send(t.Context(), f))
		_, err := c.Receive()
		require.Equal(t, net.ErrClosed, err)
		require.NoError(t, c.Close())
		wg.Wait()
	})
	synctest.Test(t, func(t *testing.T) {
		c, _ := fakeSession(t, formExtended, ClientOptions{}, pipe.Options{Messages: 1})
		f := &frame.Brep{Type: frame.TypeData}
		require.NoError(t, c.Send(t.Context(), f, f, f))
		start := time.Now()
		require.NoError(t, c.Close())
		require.Equal(t, closeTimeout, time.Since(start))
	})
}

// TestAnswersPing also when the relay sends PINGs and does not read: the answers
// do not pile up.
func TestAnswersPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := fakeSession(t, formExtended, ClientOptions{}, pipe.Options{Messages: 1})
		const pings = 20_000
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range pings {
				r.write(&frame.Brep{Type: frame.TypePing, Payload: fmt.Appendf(nil, "%08d", i)})
			}
			r.write(&frame.Brep{Type: frame.TypeData})
		})
		f, err := c.Receive()
		require.NoError(t, err)
		require.Equal(t, frame.TypeData, f.Type, "neither PING nor PONG is returned")
		wg.Wait()
		c.out.mu.Lock()
		require.LessOrEqual(t, c.out.bytes, sendQueueBytes)
		c.out.mu.Unlock()
		got := r.read()
		require.Equal(t, frame.Brep{Type: frame.TypePong, Sender: identity(t, 1).Public(), Payload: []byte("00000000")}, got)
	})
}

// TestClientPings: what a relay does not say in 75 s.
func TestClientPings(t *testing.T) {
	const interval = 30 * time.Second
	synctest.Test(t, func(t *testing.T) {
		c, r := fakeSession(t, formExtended, ClientOptions{PingInterval: interval}, pipe.Options{})
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := 1; i <= 4; i++ { // answers keep it alive
				f := r.read()
				require.Equal(t, frame.TypePing, f.Type)
				require.Len(t, f.Payload, pingSize)
				require.Equal(t, time.Duration(i)*interval, time.Since(start))
				f.Type = frame.TypePong
				r.write(&f)
			}
		})
		_, err := c.Receive()
		require.Equal(t, errSilent, errors.Unwrap(err))
		require.Equal(t, 4*interval+75*time.Second, time.Since(start))
		wg.Wait()
	})
	synctest.Test(t, func(t *testing.T) { // a busy relay is pinged as well, or it would take us for gone
		c, r := fakeSession(t, formExtended, ClientOptions{PingInterval: interval}, pipe.Options{})
		go func() {
			for range 100 {
				time.Sleep(time.Second)
				r.write(&frame.Brep{Type: frame.TypeData})
			}
		}()
		for range 100 {
			_, err := c.Receive()
			require.NoError(t, err)
		}
		for range 3 {
			require.Equal(t, frame.TypePing, r.read().Type)
		}
	})
	synctest.Test(t, func(t *testing.T) { // legacy: no PING, no limit
		c, r := fakeSession(t, formLegacy, ClientOptions{PingInterval: interval}, pipe.Options{})
		time.AfterFunc(time.Hour, func() { r.write(&frame.Brep{Type: frame.TypeData}) })
		_, err := c.Receive()
		require.NoError(t, err)
		require.NoError(t, r.conn.SetReadDeadline(time.Now()))
		_, _, err = r.conn.Read()
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	})
}

func TestRelayErrorText(t *testing.T) {
	require.Equal(t, "brep: the relay refuses: denied", (&RelayError{Code: frame.CodeDenied}).Error())
	require.Equal(t, "brep: the relay refuses: denied", (&RelayError{Code: frame.CodeDenied, Reason: "denied"}).Error())
	require.Equal(t, `brep: the relay refuses: denied: "a\nb"`, (&RelayError{Code: frame.CodeDenied, Reason: "a\nb"}).Error())
	for c := frame.CodeMalformed; c <= frame.CodeInternal; c++ {
		final := c == 3 || c == 4 || c == 5 || c == 17 || c == 18
		require.Equal(t, final, (&RelayError{Code: c}).Final(), "%v", c)
	}
}
