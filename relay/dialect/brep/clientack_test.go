package brep

import (
	"bytes"
	"crypto/ed25519"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
)

// message returns the n-th message of somebody's.
func message(n int, flags uint8) *frame.Brep {
	return &frame.Brep{
		Type: frame.TypeData, Flags: flags, ID: [16]byte{1, byte(n), byte(n >> 8)},
		Sender: [32]byte{7}, Signature: [64]byte{8}, Payload: make([]byte, 40),
	}
}

// acks reads the frames that are on their way and returns what they acknowledge.
func (r *fakeRelay) acks() (all []frame.Ack, frames int) {
	r.t.Helper()
	synctest.Wait()
	for {
		require.NoError(r.t, r.conn.SetReadDeadline(time.Now().Add(time.Millisecond)))
		_, msg, err := r.conn.Read()
		require.NoError(r.t, r.conn.SetReadDeadline(time.Time{}))
		if err != nil {
			require.ErrorIs(r.t, err, os.ErrDeadlineExceeded)
			return all, frames
		}
		f, err := frame.DecodeBrep(msg)
		require.NoError(r.t, err)
		require.Equal(r.t, frame.TypeAck, f.Type)
		require.EqualValues(r.t, identity(r.t, 1).Public(), f.Sender)
		frames++
		for rest := f.Payload; len(rest) > 0; {
			var a frame.Ack
			a, rest, err = frame.DecodeAck(rest)
			require.NoError(r.t, err)
			all = append(all, a)
		}
	}
}

// TestReceiveAcknowledges what it returned before, together with the others that
// had come, and never what it returned last.
func TestReceiveAcknowledges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := fakeSession(t, formExtended, ClientOptions{}, pipe.Options{Messages: 1000})
		const messages = 200
		for n := range messages {
			r.write(message(n, 0))
		}
		for n := range messages {
			f, err := c.Receive()
			require.NoError(t, err)
			require.Equal(t, message(n, 0).ID, f.ID)
		}
		got, frames := r.acks()
		require.GreaterOrEqual(t, len(got), 2*acksTogether, "so many do not wait for more")
		require.Less(t, len(got), messages)
		require.LessOrEqual(t, frames, messages/10, "together")
		go func() { _, _ = c.Receive() }()
		last, frames := r.acks()
		require.Equal(t, 1, frames, "nothing is left to read")
		got = append(got, last...)
		require.Len(t, got, messages)
		for n, a := range got {
			require.Equal(t, frame.Ack{Sender: [32]byte{7}, ID: message(n, 0).ID}, a)
		}
	})
}

// TestAcknowledgesOnce also when nothing is returned between.
func TestAcknowledgesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := fakeSession(t, formExtended, ClientOptions{}, pipe.Options{Limit: 300})
		r.write(message(1, 0))
		r.write(&frame.Brep{Type: frame.TypeData, Payload: make([]byte, 500)})
		_, err := c.Receive()
		require.NoError(t, err)
		_, err = c.Receive()
		require.Equal(t, transport.ErrTooLarge, err)
		go func() { _, _ = c.Receive() }()
		got, _ := r.acks()
		require.Len(t, got, 1)
	})
}

// TestCloseAcknowledges what has been handled, and not what was returned last.
func TestCloseAcknowledges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := fakeSession(t, formExtended, ClientOptions{}, pipe.Options{Messages: 1000})
		for n := range 3 {
			r.write(message(n, 0))
		}
		for range 3 {
			_, err := c.Receive()
			require.NoError(t, err)
		}
		require.NoError(t, c.Close())
		f := r.read()
		require.Equal(t, frame.TypeAck, f.Type)
		require.Len(t, f.Payload, 2*frame.AckSize)
		require.EqualValues(t, transport.CloseNormal, closeOf(t, r.conn))
	})
}

// TestAcknowledged: what is acknowledged, by whom, and with which signature.
func TestAcknowledged(t *testing.T) {
	typed := func(typ frame.Type) *frame.Brep {
		f := message(1, frame.FlagReceipt)
		f.Type = typ
		return f
	}
	noID := message(1, frame.FlagReceipt)
	noID.ID = [16]byte{}
	for _, o := range []struct {
		name string
		form uint8
		f    *frame.Brep
		want bool
	}{
		{"DATA", formExtended, message(1, 0), true},
		{"DATA with a receipt", formExtended, message(1, frame.FlagReceipt), true},
		{"SIGNED_DATA", formExtended, typed(frame.TypeSignedData), true},
		{"ENCRYPTED_DATA", formExtended, typed(frame.TypeEncryptedData), true},
		{"SEALED", formExtended, typed(frame.TypeSealed), true},
		{"without an id", formExtended, noID, false},
		{"ephemeral", formExtended, message(1, frame.FlagReceipt|frame.FlagEphemeral), false},
		{"NODE_INFO", formExtended, typed(frame.TypeNodeInfo), false},
		{"RECEIPT", formExtended, typed(frame.TypeReceipt), false},
		{"MESSAGE", formExtended, typed(frame.TypeMessage), false},
		{"unknown", formExtended, typed(0x7f), false},
		{"legacy", formLegacy, message(1, frame.FlagReceipt), false},
	} {
		for _, manual := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				c, r := fakeSession(t, o.form, ClientOptions{ManualAck: manual}, pipe.Options{})
				r.write(o.f)
				f, err := c.Receive()
				require.NoError(t, err, o.name)
				go func() { _, _ = c.Receive() }()
				got, _ := r.acks()
				if manual {
					require.Empty(t, got, o.name)
					f.Payload = nil
					c.Ack(&f)
					got, _ = r.acks()
				}
				if !o.want {
					require.Empty(t, got, o.name)
					return
				}
				require.Len(t, got, 1, o.name)
				require.Equal(t, o.f.Sender, got[0].Sender)
				require.Equal(t, o.f.ID, got[0].ID)
				if o.f.Flags == 0 {
					require.Zero(t, got[0].Signature)
					return
				}
				self := identity(t, 1).Public()
				signed := bytes.Join([][]byte{[]byte("sotto ack v1\x00"), o.f.Sender[:], o.f.ID[:]}, nil)
				require.True(t, ed25519.Verify(self[:], signed, got[0].Signature[:]), o.name)
			})
		}
	}
}

// TestAckTogether: acknowledgements of many goroutines do not wait for anything,
// share frames while one is being written, and end with the connection.
func TestAckTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := fakeSession(t, formExtended, ClientOptions{ManualAck: true}, pipe.Options{Messages: 1})
		const messages = 300
		for n := range 2 { // one is in the pipe, one waits for its turn
			c.Ack(message(n, 0))
			synctest.Wait()
		}
		var acking sync.WaitGroup
		for n := 2; n < messages; n++ {
			acking.Go(func() { c.Ack(message(n, 0)) })
		}
		acking.Wait()
		var got []frame.Ack
		frames := 0
		for len(got) < messages {
			more, n := r.acks()
			got, frames = append(got, more...), frames+n
		}
		require.Len(t, got, messages)
		require.Equal(t, 2+5, frames)
		_ = r.conn.Close(0, "")
		_, err := c.Receive()
		require.Error(t, err)
		c.Ack(message(0, 0))
		require.Empty(t, c.out.acks)
	})
}

// TestAcksBounded: a relay that keeps to no window and does not read makes nothing
// pile up.
func TestAcksBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := fakeSession(t, formExtended, ClientOptions{ManualAck: true}, pipe.Options{Messages: 1})
		for n := range 3 * sendQueueBytes / frame.AckSize {
			c.Ack(message(n, 0))
		}
		synctest.Wait()
		c.out.mu.Lock()
		defer c.out.mu.Unlock()
		require.LessOrEqual(t, len(c.out.acks)+c.out.bytes, 3*sendQueueBytes)
	})
}

// TestAckAllocations: none in steady state.
func TestAckAllocations(t *testing.T) {
	skipUnderRace(t)
	for _, flags := range []uint8{0, frame.FlagReceipt} {
		c, r := fakeSession(t, formExtended, ClientOptions{}, pipe.Options{Messages: 1000})
		encoded := [][]byte{message(1, flags).Append(nil)}
		_, err := r.conn.Write(transport.Binary, encoded)
		require.NoError(t, err)
		run := func() {
			if _, err := c.Receive(); err != nil {
				t.Fatal(err)
			}
			if _, err := r.conn.Write(transport.Binary, encoded); err != nil {
				t.Fatal(err)
			}
			c.out.flushAcks()
			if _, _, err := r.conn.Read(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Receive(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.conn.Write(transport.Binary, encoded); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			run()
		}
		require.Zero(t, testing.AllocsPerRun(1000, run), "flags %d", flags)
	}
}

// BenchmarkAck is one message that is received and acknowledged.
func BenchmarkAck(b *testing.B) {
	for name, flags := range map[string]uint8{"plain": 0, "signed": frame.FlagReceipt} {
		b.Run(name, func(b *testing.B) {
			c, r := fakeSession(b, formExtended, ClientOptions{}, pipe.Options{Messages: 1000})
			encoded := [][]byte{message(1, flags).Append(nil)}
			go func() {
				for {
					if _, err := r.conn.Write(transport.Binary, encoded); err != nil {
						return
					}
				}
			}()
			go func() {
				for {
					if _, _, err := r.conn.Read(); err != nil {
						return
					}
				}
			}()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Receive(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
