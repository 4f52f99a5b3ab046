package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/sotto-relay/sotto/crypto"
)

// A Client is a key that is logged in at a relay, most of the time. See the
// package comment for who may call what.
type Client struct {
	cfg   Config
	in    *inbound
	out   *outbox
	ask   *calls
	stand *standing
	files *files

	keys   *keyring
	book   *cardbook
	groups *groups

	online chan struct{} // closed at the first login
	done   chan struct{} // closed when all goroutines have ended

	count counters

	life context.Context // until the end
	kill context.CancelFunc

	mu   sync.Mutex
	err  error // why it ended
	last error // why there is no connection

	// Owned by run, and what it calls.
	open      *opener
	perMsg    *rate.Limiter
	perByte   *rate.Limiter
	warned    bool      // that others can read
	forged    bool      // a receipt, which was logged
	renewAt   time.Time // the token of this connection; zero: never
	connected sync.Once
}

// New returns a Client after its first login. Until ctx ends, or the Client is
// refused for good (see [Client.Err]), it keeps trying; a relay that is not there
// yet is no error. Once New has returned, ctx does not matter any more: end the
// Client with Close.
//
// When ctx ends, the error wraps its error and that of the last attempt.
func New(ctx context.Context, config *Config) (*Client, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	c := newClient(config.withDefaults())
	if err := cmp.Or(c.openStore(ctx), c.openKeys(ctx)); err != nil {
		c.end(err)
		return nil, err
	}
	go c.run()
	if config.StartOffline {
		return c, nil
	}
	select {
	case <-c.online:
		return c, nil
	case <-c.life.Done():
		<-c.done
		return nil, c.Err()
	case <-ctx.Done():
		_ = c.Close()
		return nil, c.noLogin(ctx.Err())
	}
}

func newClient(cfg Config) *Client {
	c := &Client{
		cfg:     cfg,
		in:      newInbound(cfg.Remembered),
		online:  make(chan struct{}),
		done:    make(chan struct{}),
		perMsg:  rate.NewLimiter(rate.Limit(cfg.MessageRate), cfg.MessageBurst),
		perByte: rate.NewLimiter(rate.Limit(cfg.ByteRate), cfg.ByteBurst),
	}
	c.out = newOutbox(load{cfg.PendingMessages, cfg.PendingBytes}, load{cfg.KeptMessages, cfg.KeptBytes}, cfg.Trace)
	c.ask = newCalls()
	c.stand = newStanding(c.ask)
	c.files = newFiles(c, cfg.Files)
	c.life, c.kill = context.WithCancel(context.Background())
	return c
}

func (c *Client) noLogin(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		return fmt.Errorf("client: no login: %w", err)
	}
	return fmt.Errorf("client: no login: %w: %w", err, c.last)
}

// Messages returns the letters that come in, from first to last, as long as the
// loop goes on. It may be called again, and the next letter comes then. If more
// than one loop runs, each letter goes to one of them.
//
// The application has taken a letter, and the relay is told so, when the loop
// comes back for the next, and also when the loop is left by break or return; not
// if it panics. Use [Client.Handle] where it may turn out otherwise. The package
// comment says what becomes of letters that are not taken.
//
// The last pair has no letter but the reason: ctx's error, or that of
// [Client.Err].
func (c *Client) Messages(ctx context.Context) iter.Seq2[*Letter, error] {
	return func(yield func(*Letter, error) bool) {
		for more := true; more; {
			err := c.hand(ctx, nil, func(l *Letter) error {
				more = yield(l, nil)
				return nil
			})
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// Handle calls f for each letter that comes in, one at a time, or with
// [Concurrently] one of each sender at a time, until f returns an error, ctx or the
// Client ends, and returns that error. f may call any method, also Send, and wait for
// its receipt.
//
// The application has taken a letter, and the relay is told so, when f returns
// nil. With an error, or a panic, it has not: it is the next one that Handle or
// Messages gets, from this Client or from the next with this identity. With an
// error that is [ErrLater], Handle goes on with the letter after it.
func (c *Client) Handle(ctx context.Context, f func(context.Context, *Letter) error, options ...HandleOption) error {
	o := handleOptions{atOnce: 1}
	for _, set := range options {
		set(&o)
	}
	if o.atOnce <= 1 {
		return c.handle(ctx, nil, func(l *Letter) error { return f(ctx, l) })
	}
	together := &crew{busy: make(map[crypto.PublicKey]bool)}
	taking, stop := context.WithCancel(ctx)
	defer stop()
	ends := make(chan error, 2*o.atOnce)
	var handling sync.WaitGroup
	for range o.atOnce {
		handling.Go(func() {
			ends <- c.handle(taking, together, func(l *Letter) error {
				err := f(ctx, l)
				if err != nil && !errors.Is(err, ErrLater) {
					ends <- err
					stop() // before the letter is there again
				}
				return err
			})
		})
	}
	handling.Wait()
	return <-ends
}

// A HandleOption changes how letters are handled.
type HandleOption func(*handleOptions)

type handleOptions struct{ atOnce int }

// Concurrently has Handle call its function for up to n letters at once, of
// different senders: those of one sender come in order, one at a time. After an
// error no more letters are taken, and Handle returns it when the other calls have
// returned. A panic ends the program.
func Concurrently(n int) HandleOption { return func(o *handleOptions) { o.atOnce = n } }

// handle gives f letters until it fails.
func (c *Client) handle(ctx context.Context, together *crew, f func(*Letter) error) error {
	for {
		if err := c.hand(ctx, together, f); err != nil {
			return err
		}
	}
}

// hand gives f the next letter, and does with it what f's error says.
func (c *Client) hand(ctx context.Context, together *crew, f func(*Letter) error) error {
	a, err := c.in.take(ctx, together)
	if err != nil {
		return err
	}
	then := c.in.putBack
	defer func() {
		then(a)
		c.in.release(together, a)
	}()
	switch err := f(a.letter); {
	case err == nil:
		then = c.in.settle
	case errors.Is(err, ErrLater):
		then = c.in.leave
	default:
		return err
	}
	return nil
}

// Close ends the Client. What waits in Send or for a letter returns, and messages
// that have no receipt yet end with ErrClosed, or stay in the Store if there is one
// (see Send). What has been given to the connection, and that letters have been taken,
// is written, for which it waits a second at most. Letters that have not been taken stay with the relay, also one
// that is being handled: it comes again, even if it is taken after Close, unless it
// was recorded in the Store before the next Client with that began.
//
// It may be called any number of times, and returns nil when everything has
// ended.
func (c *Client) Close() error {
	c.end(ErrClosed)
	<-c.done
	return nil
}

// Err returns why the Client has ended: ErrClosed, or what the relay is refused
// for (a *handshake.Error, a *handshake.KeyMismatchError, an error of
// Config.Trust) or has refused us with (a *brep.RelayError whose Final method
// says so, such as one with frame.CodeReplaced after a newer login of the same
// key). Nil: it has not ended.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// end ends the Client. Only the first call counts.
func (c *Client) end(err error) {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = err
	}
	c.mu.Unlock()
	if first {
		c.out.close(err)
		c.stand.close(err)
		c.ask.close(err)
		c.kill()
	}
}

// Stats counts what came in.
type Stats struct {
	Letters uint64 // for the application
	Repeats uint64 // of those, dropped
	Dropped uint64 // messages and publications that did not verify, open or parse, or for which there was no room

	Publications uint64 // for subscriptions and rooms, gaps not counted
	Missed       uint64 // of those, not taken in time
}

type counters struct{ letters, repeats, dropped, publications, missed atomic.Uint64 }

// Stats returns the counters.
func (c *Client) Stats() Stats {
	return Stats{
		Letters: c.count.letters.Load(),
		Repeats: c.count.repeats.Load(),
		Dropped: c.count.dropped.Load(),

		Publications: c.count.publications.Load(),
		Missed:       c.count.missed.Load(),
	}
}
