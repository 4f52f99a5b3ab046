package blind

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/transport"
)

// A Sealer seals what frames carry, and opens it. It may be called concurrently.
type Sealer interface {
	// Nonce returns a nonce for the header of one frame, not empty.
	Nonce() string

	// Seal seals data. encoded is the header as it will stand in the frame: what a
	// signature and a ciphertext should be bound to.
	Seal(h *frame.BlindHeader, encoded, data []byte) (signature, ciphertext []byte, err error)

	// Open checks a frame and opens it. What it is given is valid for the call.
	Open(f *frame.BlindFrame) (data []byte, err error)
}

// A ClientConfig is what a Client needs. It is not changed afterwards.
type ClientConfig struct {
	Dial   transport.Dialer // required
	Sealer Sealer           // required
	Sender string           // of all frames; required

	// Lost is told why there is no connection, and when it will be tried again.
	// Nil: nobody is.
	Lost func(err error, in time.Duration)
}

// A Client is a device: it subscribes to keys, and sends and receives frames. When
// its connection is lost it connects again and resubscribes, for as long as
// somebody is in Receive. Nobody keeps frames for it meanwhile: at every Event
// that says Connected it has to bring itself up to date with the others.
//
// Receive is for one goroutine at a time. The other methods may be called by any
// at any time, but wait for Receive to be called by another one.
type Client struct {
	config ClientConfig
	seq    atomic.Uint64 // of the last frame
	life   context.Context
	cancel context.CancelFunc

	// Owned by the goroutine in Receive.
	attempt int       // to connect, since the last connection that held
	since   time.Time // when the connection began

	// Who has its one place may write, and change what the relay is to know. (A
	// channel, since a write can take long, and a context ends the wait for it.)
	out       chan struct{}
	keys      map[string]struct{}
	rotations map[string]*rotation // by the key that is to be rotated

	mu   sync.Mutex // taken after out
	conn transport.Conn
	up   chan struct{} // closed when there is a conn
}

type rotation struct {
	to   string
	done chan error // has room for one
}

// An Event is what a Client has received.
type Event struct {
	// Connected says that there is a new connection, with all subscriptions. What
	// was sent in the meantime has been missed. Nothing else is set then.
	Connected bool

	Header frame.BlindHeader
	Data   []byte // opened; valid until the next Receive
	Err    error  // why the frame could not be parsed or opened; there is no Data then
}

// A Message is what a Client sends in one frame.
type Message struct {
	Kind     frame.BlindKind
	EntityID string
	Route    string // the key that it goes to; empty: EntityID
	Data     []byte
}

// A DeniedError says why a key was not rotated.
type DeniedError struct {
	From   string
	To     string // for a conflict: where the key that is in the way leads
	Reason string // "conflict", "limit" or "not-authorized"
}

func (e *DeniedError) Error() string { return "blind: the rotation was denied: " + e.Reason }

const (
	writeTimeout = 30 * time.Second
	dialTimeout  = 30 * time.Second

	// The time between tries to connect is random, and at most as long as the
	// first, doubled each time, or the second.
	shortestWait = 100 * time.Millisecond
	longestWait  = 30 * time.Second

	// longEnough is how long a connection has to hold for the next try to be a
	// first one.
	longEnough = time.Minute
)

// NewClient returns a client. It connects when Receive is called.
func NewClient(c ClientConfig) *Client {
	if c.Lost == nil {
		c.Lost = func(error, time.Duration) {}
	}
	life, cancel := context.WithCancel(context.Background())
	return &Client{
		config: c, life: life, cancel: cancel, out: make(chan struct{}, 1), up: make(chan struct{}),
		keys: make(map[string]struct{}), rotations: make(map[string]*rotation),
	}
}

// Close ends the connection, and everything that waits with net.ErrClosed. It may
// be called any number of times, and always returns nil.
func (c *Client) Close() error {
	c.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		_ = c.conn.Close(transport.CloseNormal, "")
	}
	return nil
}

// Receive waits for the next event, connecting as often as it takes. The error is
// ctx's, or net.ErrClosed after Close; after ctx's it may be called again, and has
// lost nothing.
func (c *Client) Receive(ctx context.Context) (Event, error) {
	for {
		conn := c.current()
		if conn == nil {
			err := c.connect(ctx)
			return Event{Connected: err == nil}, err
		}
		msg, err := c.read(ctx, conn)
		switch {
		case errors.Is(err, transport.ErrTooLarge):
		case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil:
			return Event{}, ctx.Err()
		case err != nil:
			c.lose(conn)
			if c.life.Err() != nil {
				return Event{}, net.ErrClosed
			}
			if time.Since(c.since) >= longEnough {
				c.attempt = 0
			}
			if err := c.rest(ctx, err); err != nil {
				return Event{}, err
			}
		case len(msg) > 0 && msg[0] == channelFrame:
			return c.open(msg[1:]), nil
		case len(msg) > 0 && msg[0] == channelControl:
			c.answered(msg[1:])
		}
	}
}

// read is conn.Read until ctx ends.
func (c *Client) read(ctx context.Context, conn transport.Conn) ([]byte, error) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = conn.SetReadDeadline(time.Unix(1, 0))
		close(ended)
	})
	_, msg, err := conn.Read()
	if !stop() {
		<-ended
		_ = conn.SetReadDeadline(time.Time{})
	}
	return msg, err
}

func (c *Client) open(b []byte) Event {
	f, err := frame.ParseBlind(b)
	if err != nil {
		return Event{Err: err}
	}
	data, err := c.config.Sealer.Open(&f)
	if err != nil {
		return Event{Header: f.Header, Err: err}
	}
	return Event{Header: f.Header, Data: data}
}

// connect dials until there is a connection that has all subscriptions.
func (c *Client) connect(ctx context.Context) error {
	for {
		if c.life.Err() != nil {
			return net.ErrClosed
		}
		dialling, cancel := context.WithTimeout(ctx, dialTimeout)
		stop := context.AfterFunc(c.life, cancel)
		conn, err := c.config.Dial(dialling)
		stop()
		cancel()
		if err == nil {
			if err = c.resume(ctx, conn); err == nil {
				c.since = time.Now()
				return nil
			}
			_ = conn.Close(transport.CloseNormal, "")
		}
		if err := c.rest(ctx, err); err != nil {
			return err
		}
	}
}

// rest waits before the next try to connect.
func (c *Client) rest(ctx context.Context, why error) error {
	most := longestWait
	if c.attempt < 10 {
		most = min(most, shortestWait<<c.attempt)
	}
	c.attempt++
	d := rand.N(most)
	c.config.Lost(why, d)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.life.Done():
		return net.ErrClosed
	}
}

// resume tells the relay on a new connection what it has to know, and then lets
// others use it.
func (c *Client) resume(ctx context.Context, conn transport.Conn) error {
	if err := c.lock(ctx); err != nil {
		return err
	}
	defer c.unlock()
	msgs := keysMessages("subscribe", slices.Collect(maps.Keys(c.keys)))
	for from, r := range c.rotations { // again, which is no harm
		msgs = append(msgs, rotateMessage(from, r.to))
	}
	if err := write(conn, msgs); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return net.ErrClosed
	}
	c.conn = conn
	close(c.up)
	return nil
}

func (c *Client) lock(ctx context.Context) error {
	select {
	case c.out <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.life.Done():
		return net.ErrClosed
	}
}

func (c *Client) unlock() { <-c.out }

func (c *Client) current() transport.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn
}

// lose ends a connection. Receive will see to the next one.
func (c *Client) lose(conn transport.Conn) {
	_ = conn.Close(transport.CloseNormal, "")
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == conn {
		c.conn, c.up = nil, make(chan struct{})
	}
}

// tell writes messages if there is a connection; if not, resume will do without
// them. The caller has locked.
func (c *Client) tell(msgs ...[]byte) {
	if conn := c.current(); conn != nil && write(conn, msgs) != nil {
		c.lose(conn)
	}
}

func write(conn transport.Conn, msgs [][]byte) error {
	for len(msgs) > 0 {
		_ = conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		n, err := conn.Write(transport.Binary, msgs)
		if err != nil {
			return err
		}
		msgs = msgs[n:]
	}
	return nil
}

// Send seals a message and sends it, waiting for a connection if there is none. A
// nil error says that it has been written, and not that anybody has it.
//
// What a relay would drop without a word is an error here: a frame over 1 MiB, a
// key over 512 bytes, a header that is none. More than 200 messages a second on
// average, or 4 MiB, it drops all the same: pacing is the caller's.
func (c *Client) Send(ctx context.Context, m Message) error {
	h := frame.BlindHeader{
		Kind: m.Kind, EntityID: m.EntityID, Sender: c.config.Sender, Seq: float64(c.seq.Add(1)),
		Nonce: c.config.Sealer.Nonce(), TS: float64(time.Now().UnixMilli()), Route: m.Route,
	}
	encoded := h.Append(nil)
	if _, err := frame.ParseHeader(encoded); err != nil {
		return fmt.Errorf("blind: no relay would take this: %w", err)
	}
	signature, ciphertext, err := c.config.Sealer.Seal(&h, encoded, m.Data)
	if err != nil {
		return fmt.Errorf("blind: sealing: %w", err)
	}
	if len(signature) > math.MaxUint16 {
		return errSignature
	}
	msg := frame.AppendBlind([]byte{channelFrame}, encoded, signature, ciphertext)
	if most := (Dialect{}).Limits().MessageBytes; len(msg) > most || max(len(m.EntityID), len(m.Route)) > DefaultKeyBytes {
		return errTooLong
	}
	for {
		c.mu.Lock()
		conn, up := c.conn, c.up
		c.mu.Unlock()
		if conn != nil {
			if err := c.lock(ctx); err != nil {
				return err
			}
			err := write(conn, [][]byte{msg})
			c.unlock()
			if err == nil {
				return nil
			}
			c.lose(conn)
			continue
		}
		select {
		case <-up:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.life.Done():
			return net.ErrClosed
		}
	}
}

var (
	errSignature = errors.New("blind: the Sealer's signature has more than 65,535 bytes")
	errTooLong   = errors.New("blind: the frame or its key is too long for a relay")
)
