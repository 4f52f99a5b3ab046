package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// acks returns the ids that the client has acknowledged to this connection, by
// their first byte, with an s where it has signed.
func (c *fakeConn) acks() (ids string) {
	synctest.Wait()
	for {
		require.NoError(c.t, c.SetReadDeadline(time.Now().Add(time.Millisecond)))
		f, err := c.read()
		if err != nil {
			return ids
		}
		require.Equal(c.t, frame.TypeAck, f.Type)
		for rest := f.Payload; len(rest) > 0; {
			var a frame.Ack
			a, rest, err = frame.DecodeAck(rest)
			require.NoError(c.t, err)
			ids += strconv.Itoa(int(a.ID[0]))
			if a.Signature != [64]byte{} {
				ids += "s"
			}
			ids += " "
		}
	}
}

// TestAcknowledges: which frames a client acknowledges, and when: letters once
// they are taken, on the connection that there is then; the rest at once; and of
// copies all but one for each letter that is unread, so that a sender that repeats
// himself does not fill the relay's window for good. Only under the ids of letters that
// were taken there is a signature.
func TestAcknowledges(t *testing.T) {
	self, alice := identity(t, 1), identity(t, 2)
	text := crypto.Content{Type: crypto.Text, Data: []byte("hello")}
	one, two, three := sealed(t, alice, self, 1, text), sealed(t, alice, self, 2, text), sealed(t, alice, self, 3, text)
	forged := sealed(t, alice, self, 4, text)
	forged.Signature[0] ^= 1
	hidden := encrypted(t, alice, self, text)
	hidden.ID = [16]byte{5}
	renamed := *hidden
	renamed.ID = [16]byte{6}
	for _, f := range []*frame.Brep{one, two, forged, hidden, &renamed} {
		f.Flags |= frame.FlagReceipt
	}
	synctest.Test(t, func(t *testing.T) {
		conns := make(chan *fakeConn)
		over := make(chan struct{})
		r := &fakeRelay{t: t, seed: relaySeed, script: func(c *fakeConn) {
			conns <- c
			<-over
		}}
		c, err := r.client(nil)
		require.NoError(t, err)
		take := func() {
			t.Helper()
			require.Equal(t, "hello", next(t, c).Text())
		}

		first := <-conns
		first.write(one)
		first.write(two)
		require.Empty(t, first.acks(), "unread")
		first.write(one)
		require.Equal(t, "1 ", first.acks(), "the copy")
		first.write(forged)
		require.Equal(t, "4 ", first.acks(), "no letter")
		take()
		require.Equal(t, "1s ", first.acks())
		first.write(one)
		require.Equal(t, "1s ", first.acks(), "a repeat")
		first.write(hidden)
		first.write(&renamed)
		require.Equal(t, "6 ", first.acks(), "a copy by another name")
		first.write(three)
		synctest.Wait()
		_ = first.Close(0, "")

		second := <-conns
		take() // two, before it comes again
		second.write(two)
		second.write(&renamed)
		second.write(hidden)
		second.write(three)
		require.Equal(t, "2s 6 ", second.acks(), "taken, and by another name; the others are unread")
		second.write(hidden)
		require.Equal(t, "5 ", second.acks(), "a copy")
		take()
		require.Equal(t, "5s ", second.acks(), "on the connection that there is")
		second.write(&renamed)
		require.Equal(t, "6 ", second.acks(), "read, but not under this id")
		require.NoError(t, c.Close())
		require.Empty(t, second.acks(), "Close takes nothing")
		require.Equal(t, Stats{Letters: 4, Repeats: 9, Dropped: 1}, c.Stats())
		close(over)
	})
}

// TestNotTaken: a letter that was not taken is the next again, for this Client and
// for the one after it; and what was taken is not, also where the loop ended.
func TestNotTaken(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		alice, bob := identity(t, 1), identity(t, 2)
		a, b := r.client(alice, nil), r.client(bob, nil)
		for i := range 9 {
			send(t, a, bob, strconv.Itoa(i))
		}
		stop := errors.New("enough")
		refuse := func(want string) {
			t.Helper()
			require.Equal(t, stop, b.Handle(t.Context(), func(_ context.Context, l *Letter) error {
				require.Equal(t, want, l.Text())
				return stop
			}))
		}
		refuse("0")
		refuse("0")
		require.Equal(t, "0", next(t, b).Text(), "a loop that ends has taken it")
		require.Panics(t, func() {
			for range b.Messages(t.Context()) {
				panic("lost")
			}
		})
		require.Equal(t, "1", next(t, b).Text())
		seen := 2
		for l, err := range b.Messages(t.Context()) {
			require.NoError(t, err)
			require.Equal(t, strconv.Itoa(seen), l.Text())
			seen++
			if seen == 5 {
				break
			}
		}
		synctest.Wait() // until the relay knows
		require.Equal(t, stop, b.Handle(t.Context(), func(_ context.Context, l *Letter) error {
			require.Equal(t, "5", l.Text())
			require.NoError(t, b.Close())
			return stop
		}))
		for _, err := range b.Messages(t.Context()) {
			require.Equal(t, ErrClosed, err, "the others are for the next login")
		}
		b = r.client(bob, nil)
		for i := 5; i < 9; i++ {
			require.Equal(t, strconv.Itoa(i), next(t, b).Text())
		}
		synctest.Wait()
		require.NoError(t, b.Close())
		none(t, r.client(bob, nil))
	})
}

// TestLater: a letter that is left does not hold up the others, and comes again
// after a reconnect, once.
func TestLater(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.dialect.Durable = true // or the sender sends again too
		bob := identity(t, 2)
		a, b := r.client(identity(t, 1), nil), r.client(bob, nil)
		for i := range 5 {
			send(t, a, bob, strconv.Itoa(i))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var got []string
		require.ErrorIs(t, b.Handle(ctx, func(_ context.Context, l *Letter) error {
			got = append(got, l.Text())
			switch len(got) {
			case 2, 4:
				return fmt.Errorf("no room: %w", ErrLater)
			case 5:
				time.AfterFunc(time.Minute, func() { r.stop(); r.start() })
			}
			return nil
		}), context.DeadlineExceeded)
		require.Equal(t, []string{"0", "1", "2", "3", "4", "1", "3"}, got)
		require.Equal(t, Stats{Letters: 7}, b.Stats())
	})
}

// TestLaterBesideSpill: that holds for more than the relay keeps in memory, too.
func TestLaterBesideSpill(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const letters = 40
		r.dialect.Durable = true
		bob := identity(t, 2)
		a, b := r.client(identity(t, 1), nil), r.client(bob, nil)
		for i := range letters {
			data := make([]byte, 256<<10)
			data[0] = byte(i)
			_, err := a.Send(t.Context(), bob.Public(), Raw(data), NoWait())
			require.NoError(t, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var got []byte
		require.ErrorIs(t, b.Handle(ctx, func(_ context.Context, l *Letter) error {
			got = append(got, l.Data[0])
			if len(got) == 1 {
				return ErrLater
			}
			return nil
		}), context.DeadlineExceeded)
		require.Len(t, got, letters)
		for i, n := range got {
			require.Equal(t, byte(i), n)
		}
	})
}
