package transporttest

import (
	"sync"
	"testing"
	"time"

	"github.com/sotto-relay/sotto/transport"
)

func testReadDeadline(t *testing.T, traits Traits, a, b transport.Conn) {
	l := traits.letter(transport.Binary, 100)

	b.SetReadDeadline(time.Now().Add(-time.Hour))
	for range 3 {
		if _, _, err := b.Read(); !isTimeout(err) {
			t.Fatalf("Read past the deadline: %v", err)
		}
	}
	b.SetReadDeadline(time.Now().Add(time.Hour))
	mustSend(t, a, l)
	mustRead(t, b, l)

	begin := time.Now()
	b.SetReadDeadline(begin.Add(10 * time.Millisecond))
	if _, _, err := b.Read(); !isTimeout(err) || time.Since(begin) < 10*time.Millisecond {
		t.Fatalf("Read at the deadline: %v after %v", err, time.Since(begin))
	}
	b.SetReadDeadline(time.Time{})
	mustSend(t, a, l)
	mustRead(t, b, l)

	// A Read that waits heeds a deadline that is set later.
	wait := start(func() error { return readFails(b) })
	b.SetReadDeadline(time.Now().Add(time.Hour))
	b.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if err := wait(); !isTimeout(err) {
		t.Fatalf("a pending Read at its deadline: %v", err)
	}
	b.SetReadDeadline(time.Time{})
	mustSend(t, a, l)
	mustRead(t, b, l)
}

func testWriteDeadline(t *testing.T, traits Traits, a, b transport.Conn) {
	l := traits.letter(transport.Binary, 100)
	a.SetWriteDeadline(time.Now().Add(-time.Hour))
	if n, err := a.Write(l.kind, [][]byte{l.body}); n != 0 || !isTimeout(err) {
		t.Fatalf("Write past the deadline: %d, %v", n, err)
	}
	a.SetWriteDeadline(time.Now().Add(time.Hour))
	mustSend(t, a, l)
	mustRead(t, b, l)
	a.SetWriteDeadline(time.Time{})

	// A Write that waits heeds a deadline that is set later.
	large := traits.letter(transport.Binary, 100_000)
	wait := start(func() error {
		for range 2000 {
			if err := send(a, large.kind, large.body); err != nil {
				return err
			}
		}
		return nil
	})
	a.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	if err := wait(); !isTimeout(err) {
		t.Fatalf("a pending Write at its deadline: %v", err)
	}
}

// testCloseCode expects what was written before, then the code.
func testCloseCode(t *testing.T, traits Traits, a, b transport.Conn) {
	const reason = "that was all"
	l := traits.letter(transport.Binary, 1000)
	mustSend(t, a, l, l, l)
	mustSend(t, b, l, l) // input that nobody reads must not spoil it
	if err := a.Close(transport.CloseGoingAway, reason); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := a.Close(transport.CloseNormal, "once more"); err != nil {
		t.Errorf("second Close: %v", err)
	}
	mustRead(t, b, l, l, l)
	for range 3 {
		if _, _, err := b.Read(); !traits.isClosed(err, transport.CloseGoingAway, reason) {
			t.Errorf("Read after the peer has closed: %v", err)
		}
	}
	if _, _, err := a.Read(); err == nil {
		t.Error("Read after Close succeeds")
	}
	if _, err := a.Write(l.kind, [][]byte{l.body}); err == nil || isTimeout(err) {
		t.Errorf("Write after Close: %v", err)
	}
	if w, ok := a.(transport.TryWriter); ok {
		if _, err := w.TryWrite(l.kind, [][]byte{l.body}); err == nil || isTimeout(err) {
			t.Errorf("TryWrite after Close: %v", err)
		}
	}
	a.SetReadDeadline(time.Time{})
	a.SetWriteDeadline(time.Time{})
	if a.RemoteAddr() == nil || b.RemoteAddr() == nil {
		t.Error("no RemoteAddr")
	}
	if v := a.Value(struct{}{}); v != nil {
		t.Errorf("Value of an unknown key: %v", v)
	}
}

// testCloseUnblocks closes an end whose Read and Write wait.
func testCloseUnblocks(t *testing.T, traits Traits, a, b transport.Conn) {
	l := traits.letter(transport.Binary, 100_000)
	filled := make(chan struct{})
	write := start(func() error {
		sent := 0
		for {
			if sent++; sent == 100 {
				close(filled)
			}
			if err := send(a, l.kind, l.body); err != nil {
				if sent < 100 {
					close(filled)
				}
				return err
			}
		}
	})
	read := start(func() error { return readFails(a) })
	select {
	case <-filled:
	case <-time.After(10 * time.Millisecond):
	}
	a.Close(transport.ClosePolicy, "")
	if err := write(); isTimeout(err) {
		t.Errorf("Write: %v", err)
	}
	if err := read(); isTimeout(err) {
		t.Errorf("Read: %v", err)
	}
	if err := readFails(b); isTimeout(err) {
		t.Errorf("the other end: %v", err)
	}
}

func testCloseConcurrently(t *testing.T, traits Traits, a, b transport.Conn) {
	reads := start(func() error { return readFails(a) })
	var closers sync.WaitGroup
	for i := range 20 {
		closers.Go(func() {
			c := a
			if i%2 == 0 {
				c = b
			}
			c.SetReadDeadline(time.Now().Add(time.Hour))
			c.Close(transport.CloseGoingAway, "")
			c.SetWriteDeadline(time.Now().Add(time.Hour))
		})
	}
	closers.Wait()
	if err := reads(); isTimeout(err) {
		t.Errorf("Read: %v", err)
	}
}

// testCloseDuringTraffic closes one end while both send and read.
func testCloseDuringTraffic(t *testing.T, traits Traits, a, b transport.Conn) {
	l := traits.letter(transport.Binary, 500)
	flow := make(chan struct{}, 1)
	run := func(c transport.Conn) []func() error {
		return []func() error{
			start(func() error {
				for {
					if err := send(c, l.kind, l.body, l.body, l.body); err != nil {
						return err
					}
				}
			}),
			start(func() error {
				for i := 0; ; i++ {
					k, body, err := c.Read()
					if err != nil {
						return err
					}
					if k != l.kind || len(body) != len(l.body) {
						t.Errorf("read kind %d and %d bytes", k, len(body))
					}
					if i == 100 {
						select {
						case flow <- struct{}{}:
						default:
						}
					}
				}
			}),
		}
	}
	waits := append(run(a), run(b)...)
	<-flow
	a.Close(transport.CloseGoingAway, "bye")
	for _, wait := range waits {
		// A message that was half written leaves no place for the code, and a
		// medium need not drain the flood for long.
		if err := wait(); isTimeout(err) {
			t.Error(err)
		}
	}
}
