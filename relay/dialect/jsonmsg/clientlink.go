package jsonmsg

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sotto-relay/sotto/transport"
)

// run has one connection after the other, until the end.
func (c *Client) run() {
	defer func() {
		c.in.close(c.Err())
		close(c.done)
	}()
	for attempt := 0; ; attempt++ {
		begin := time.Now()
		registered, err := c.connect()
		if registered && time.Since(begin) >= c.o.BackoffMax {
			attempt = 0
		}
		if c.life.Err() != nil {
			return
		}
		if !c.o.Reconnect || isFinal(err) {
			c.end(err)
			return
		}
		if registered {
			c.in.add(&Disconnected{err})
		}
		if !c.pause(attempt, err) {
			return
		}
	}
}

// pause waits before the next attempt. False: the Client has ended.
func (c *Client) pause(attempt int, err error) bool {
	c.mu.Lock()
	c.last = err
	c.mu.Unlock()
	limit := c.o.BackoffMax
	if attempt < 32 && c.o.BackoffMin < limit>>attempt {
		limit = c.o.BackoffMin << attempt
	}
	t := time.NewTimer(rand.N(limit + 1)) // so that those who lost their relay together don't return together
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.life.Done():
		return false
	}
}

// connect dials, registers, and uses the connection until it ends.
func (c *Client) connect() (registered bool, err error) {
	ctx, cancel := context.WithTimeout(c.life, c.o.RegisterTimeout)
	defer cancel()
	conn, err := c.dial(ctx)
	if err != nil {
		return false, err
	}
	l := newClientLink(c, conn)
	return l.run(ctx)
}

// A clientLink is one connection.
type clientLink struct {
	c         *Client
	conn      transport.Conn
	datagrams bool
	ctx       context.Context // until the connection ends
	end       context.CancelCauseFunc
	inTime    func() bool // ends the time limit of registering
	running   sync.WaitGroup

	// Owned by the goroutine that reads.
	in         incoming
	accepted   bool        // the relay has taken the registration
	registered bool        // and has said so
	proven     bool        // it wanted a proof
	last       *RelayError // what the latest message said, if it was an error about none in particular

	writing sync.Mutex            // whoever writes
	broken  atomic.Pointer[error] // what writing failed with

	session clientSession // of datagrams
}

func newClientLink(c *Client, conn transport.Conn) *clientLink {
	l := &clientLink{c: c, conn: conn, datagrams: strings.HasPrefix(conn.RemoteAddr().Network(), "udp")}
	l.ctx, l.end = context.WithCancelCause(c.life)
	// What comes in may be a little longer than what may go out.
	conn.SetReadLimit(2 * max(c.o.MessageBytes, wholeBytes))
	return l
}

// Default limits of messages (spec json.md).
const (
	wholeBytes    = 65_536
	datagramBytes = 16_384
)

// most returns how long a message may be.
func (l *clientLink) most() int {
	switch {
	case l.c.o.MessageBytes > 0:
		return l.c.o.MessageBytes
	case l.datagrams:
		return datagramBytes
	}
	return wholeBytes
}

// run registers and reads until the connection ends, and returns why. ctx bounds the
// registration.
func (l *clientLink) run(ctx context.Context) (registered bool, err error) {
	l.inTime = context.AfterFunc(ctx, func() { l.end(fmt.Errorf("json: registering: %w", ctx.Err())) })
	l.running.Go(func() {
		<-l.ctx.Done()
		_ = l.conn.Close(transport.CloseNormal, "")
	})
	err = l.register()
	for err == nil {
		l.c.in.awaitRoom(l.ctx)
		err = l.read()
	}
	err = l.why(err)
	l.inTime()
	l.end(err)
	l.running.Wait()
	return l.registered, err
}

// why returns why the connection has ended, when reading failed with err.
func (l *clientLink) why(err error) error {
	switch cause := context.Cause(l.ctx); {
	case cause != nil:
		return cause
	case l.last != nil:
		return fmt.Errorf("%w (%w)", l.last, err)
	}
	if broken := l.broken.Load(); broken != nil {
		return *broken
	}
	return err
}

// broke notes that nothing can be written any more. The relay may have said why:
// there is some time to read that.
func (l *clientLink) broke(err error) {
	l.broken.CompareAndSwap(nil, &err)
	_ = l.conn.SetReadDeadline(time.Now().Add(lastWordsTime))
}

// register asks for the address.
func (l *clientLink) register() error {
	msg := l.c.registration()
	if l.datagrams {
		l.session.begin(msg)
		l.running.Go(l.keep)
	}
	return l.write(msg)
}

func (c *Client) registration() []byte {
	var fields []string
	if c.o.Address != "" {
		fields = append(fields, "addr", c.o.Address)
	}
	if c.o.Key != nil {
		fields = append(fields, "pubkey", c.Key().String())
	}
	if c.o.Token != "" {
		fields = append(fields, "auth", c.o.Token)
	}
	msg := encode("register", fields...)
	if c.o.Prove {
		msg = withTrue(msg, "prove")
	}
	return msg
}

// accept is called when the relay has taken the registration. What waits is written
// from now on.
func (l *clientLink) accept() {
	if l.accepted || !l.inTime() {
		return
	}
	l.accepted = true
	l.c.resume()
	l.running.Go(l.send)
	select {
	case <-l.c.online:
	default:
		close(l.c.online)
	}
}

// send writes what waits, at the pace that relays allow.
func (l *clientLink) send() {
	for l.c.rate.Wait(l.ctx) == nil {
		o, err := l.c.out.next(l.ctx)
		if err != nil {
			return
		}
		msg := l.dress(o.msg)
		if len(msg) > l.most() {
			o.ended(transport.ErrTooLarge)
			continue
		}
		if err := l.write(msg); err != nil {
			l.c.out.first(o) // not whole: the relay has not got it
			l.broke(err)
			return
		}
		o.ended(nil)
	}
}

// dress returns msg as the medium wants it: a datagram brings address and token.
func (l *clientLink) dress(msg []byte) []byte {
	if !l.datagrams {
		return msg
	}
	return extend(msg, "from_addr", l.c.addr, "token", l.session.newest())
}

// write writes one message.
func (l *clientLink) write(msg []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	for {
		if err := l.conn.SetWriteDeadline(time.Now().Add(clientWriteTimeout)); err != nil {
			return err
		}
		n, err := l.conn.Write(transport.Text, [][]byte{msg})
		if n > 0 || err != nil {
			return err
		}
	}
}

// say writes a message that nobody waits for.
func (l *clientLink) say(msg []byte) {
	if err := l.write(msg); err != nil {
		l.broke(err)
	}
}

// read takes one message. An error ends the connection.
func (l *clientLink) read() error {
	_, msg, err := l.conn.Read()
	switch {
	case errors.Is(err, transport.ErrTooLarge):
		l.c.in.add(&Unreadable{Err: err})
		return nil
	case err != nil:
		return err
	}
	return l.receive(msg)
}
