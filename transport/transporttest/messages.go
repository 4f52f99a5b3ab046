package transporttest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sotto-relay/sotto/transport"
)

// testMessages sends messages of both kinds and of the sizes at which encodings
// tend to change, and expects them in order.
func testMessages(t *testing.T, traits Traits, a, b transport.Conn) {
	var letters []letter
	for _, size := range []int{0, 1, 2, 124, 125, 126, 127, 128, 1023, 1024, 4095, 4096, 65534, 65535, 65536, 65537, 1 << 20, 5, 0} {
		if size == 0 && traits.NoEmpty || size > 16<<10 && traits.Datagrams {
			continue
		}
		letters = append(letters, traits.letter(transport.Binary, size), traits.letter(transport.Text, size))
	}
	wait := start(func() error {
		for _, l := range letters {
			if err := send(a, l.kind, l.body); err != nil {
				return err
			}
		}
		return nil
	})
	mustRead(t, b, letters...)
	if err := wait(); err != nil {
		t.Errorf("Write: %v", err)
	}
	if n, err := a.Write(transport.Binary, nil); n != 0 || err != nil {
		t.Errorf("Write of no messages: %d, %v", n, err)
	}
}

// testEcho has both ends read and write.
func testEcho(t *testing.T, traits Traits, a, b transport.Conn) {
	const rounds = 100
	wait := start(func() error {
		for range rounds {
			k, body, err := b.Read()
			if err != nil {
				return err
			}
			if err := send(b, k, body); err != nil {
				return err
			}
		}
		return nil
	})
	for i := range rounds {
		l := traits.letter(transport.Kind(i%2), 1+i*37)
		mustSend(t, a, l)
		mustRead(t, a, l)
	}
	if err := wait(); err != nil {
		t.Error(err)
	}
}

// testBatch writes many messages in few calls.
func testBatch(t *testing.T, traits Traits, a, b transport.Conn) {
	var letters []letter
	var msgs [][]byte
	for i := range 3000 {
		l := traits.letter(transport.Binary, 1+i%300)
		if i%100 == 0 {
			l = traits.letter(transport.Binary, 20_000+i)
		}
		letters = append(letters, l)
		msgs = append(msgs, l.body)
	}
	wait := start(func() error { return send(a, transport.Binary, msgs...) })
	mustRead(t, b, letters...)
	if err := wait(); err != nil {
		t.Error(err)
	}
}

// testRetain overwrites what was written as soon as Write has returned.
func testRetain(t *testing.T, traits Traits, a, b transport.Conn) {
	var letters []letter
	for i := range 20 {
		letters = append(letters, traits.letter(transport.Binary, 1+i*150))
	}
	wait := start(func() error {
		scratch := make([]byte, 4096)
		for _, l := range letters {
			if err := send(a, l.kind, scratch[:copy(scratch, l.body)]); err != nil {
				return err
			}
			clear(scratch)
		}
		return nil
	})
	mustRead(t, b, letters...)
	if err := wait(); err != nil {
		t.Error(err)
	}
}

// testValidity looks at what Read returned while more comes in.
func testValidity(t *testing.T, traits Traits, a, b transport.Conn) {
	first, second := traits.letter(transport.Binary, 300), traits.letter(transport.Binary, 301)
	mustSend(t, a, first)
	_, got, err := b.Read()
	if err != nil {
		t.Fatal(err)
	}
	mustSend(t, a, second)
	mustSend(t, b, second)
	mustRead(t, a, second)
	if !bytes.Equal(got, first.body) {
		t.Error("what Read returned changed before the next Read")
	}
	mustRead(t, b, second)
	b.SetReadDeadline(time.Now().Add(-time.Second))
	b.Read()
	b.SetReadDeadline(time.Time{})
	mustSend(t, a, first)
	mustRead(t, b, first)
}

// testTryWrite fills the connection to a reader that is frozen, and thaws it.
func testTryWrite(t *testing.T, traits Traits, a, b transport.Conn) {
	w, ok := a.(transport.TryWriter)
	if !ok {
		t.Skip("not a TryWriter")
	}
	const size, most = 50_000, 4000
	template := traits.letter(transport.Binary, size)
	numbered := func(i int) letter {
		body := bytes.Clone(template.body[:size-i%7])
		copy(body, fmt.Sprintf("%08d", i))
		return letter{template.kind, body}
	}
	sent := 0
	for full := 0; full < 100; {
		if sent > most {
			t.Fatalf("%d messages of %d bytes do not fill it: where is the bound?", most, size)
		}
		batch := [][]byte{numbered(sent).body, numbered(sent + 1).body, numbered(sent + 2).body}
		n, err := w.TryWrite(transport.Binary, batch)
		if err != nil {
			t.Fatal(err)
		}
		sent += n
		full++
		if n > 0 {
			full = 0
		}
	}
	last := sent + 20
	wait := start(func() error {
		for i := range last {
			k, got, err := b.Read()
			if err != nil {
				return err
			}
			if want := numbered(i); k != want.kind || !bytes.Equal(got, want.body) {
				return fmt.Errorf("message %d is %d bytes %.10q…", i, len(got), got)
			}
		}
		return nil
	})
	for try := true; sent < last; try = !try {
		write := a.Write
		if try {
			write = w.TryWrite
		}
		n, err := write(transport.Binary, [][]byte{numbered(sent).body})
		if err != nil {
			t.Fatal(err)
		}
		sent += n
	}
	if err := wait(); err != nil {
		t.Error(err)
	}
}

// testResume lets Writes run into their deadlines and goes on where they ended.
func testResume(t *testing.T, traits Traits, a, b transport.Conn) {
	l := traits.letter(transport.Binary, 1<<20)
	sent, calls, err := 0, 0, error(nil)
	for sent < 200 && err == nil {
		if calls++; calls > 2000 {
			t.Fatal("Write returns without having waited")
		}
		a.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		var n int
		n, err = a.Write(l.kind, [][]byte{l.body, l.body})
		sent += n
	}
	if !isTimeout(err) {
		t.Fatalf("Write to a frozen reader: %d messages, %v", sent, err)
	}
	a.SetWriteDeadline(time.Time{})
	wait := start(func() error { return send(a, l.kind, l.body, traits.letter(l.kind, 7).body) })
	for range sent + 1 {
		mustRead(t, b, l)
	}
	mustRead(t, b, traits.letter(l.kind, 7))
	if err := wait(); err != nil {
		t.Error(err)
	}
}

// testDry counts the batches that a Batcher tells of.
func testDry(t *testing.T, traits Traits, a, b transport.Conn) {
	c, ok := b.(transport.Batcher)
	if !ok {
		t.Skip("not a Batcher")
	}
	read, dry, early := 0, 0, false
	ready := make(chan int, 1000)
	c.SetDry(func() {
		dry++
		ready <- read
	})
	const batches, size = 10, 5
	l := traits.letter(transport.Binary, 100)
	wait := start(func() error {
		for range batches*size + 1 {
			if _, _, err := b.Read(); err != nil {
				return err
			}
			read++
		}
		return nil
	})
	for i := range batches {
		for read := -1; read < i*size; { // until all before has been read, and it is dry
			read = <-ready
			early = early || read > i*size
		}
		mustSend(t, a, l, l, l, l, l)
	}
	mustSend(t, a, l)
	if err := wait(); err != nil {
		t.Error(err)
	}
	if dry < batches || early {
		t.Errorf("dry was called %d times for %d batches", dry, batches)
	}
}

func testReadLimit(t *testing.T, traits Traits, a, b transport.Conn) {
	if traits.NoSkip {
		t.Skip("the medium cannot skip")
	}
	const limit = 1000
	b.SetReadLimit(limit)
	small := traits.letter(transport.Text, 10)
	for _, size := range []int{limit + 1, 2 * limit, 4 * limit} {
		largest := traits.letter(transport.Binary, limit)
		mustSend(t, a, largest)
		mustRead(t, b, largest)
		mustSend(t, a, traits.letter(transport.Binary, size), small)
		if _, _, err := b.Read(); !errors.Is(err, transport.ErrTooLarge) {
			t.Fatalf("Read of %d bytes: %v", size, err)
		}
		mustSend(t, b, small)
		mustRead(t, a, small)
		mustRead(t, b, small)
	}
	size := 100 * limit
	if traits.Datagrams {
		size = 16 * limit
	}
	b.SetReadLimit(size)
	large := traits.letter(transport.Binary, size)
	wait := start(func() error { return send(a, large.kind, large.body) })
	mustRead(t, b, large)
	if err := wait(); err != nil {
		t.Error(err)
	}
}

func testReadLimitEnds(t *testing.T, traits Traits, a, b transport.Conn) {
	const limit = 1000
	b.SetReadLimit(limit)
	mustSend(t, a, traits.letter(transport.Binary, 4*limit+1))
	if _, _, err := b.Read(); !errors.Is(err, transport.ErrTooLarge) {
		t.Fatalf("Read of more than four times the limit: %v", err)
	}
	last := traits.letter(transport.Binary, 10)
	mustSend(t, b, last)
	mustRead(t, a, last)
	for range 2 {
		if _, _, err := b.Read(); err == nil || errors.Is(err, transport.ErrTooLarge) {
			t.Errorf("Read goes on after that: %v", err)
		}
	}
	if traits.Datagrams {
		return
	}
	if err := readFails(a); !traits.NoCodes && !isCode(err, transport.CloseTooLarge) {
		t.Errorf("the other end reads %v", err)
	}
}

func isCode(err error, code uint16) bool {
	said, ok := errors.AsType[*transport.CloseError](err)
	return ok && said.Code == code
}
