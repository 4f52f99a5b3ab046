package jsonmsg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/transport"
)

// A Client is an address that is registered at a relay: the client's half of the
// dialect, over any medium. It seals what it sends to the keys of its peers, which
// it learns and pins, and opens what it gets. [Client.Events] says what comes in.
//
// Every method may be called by any goroutine at any time, also by the loop over
// Events. A Client has a goroutine of its own from [Connect] until it ends, and a
// few more while it is connected; [Client.Close] waits for all of them.
//
// # Keys
//
// A message is a NaCl box (X25519, XSalsa20, Poly1305; spec json.md) under a random
// nonce, and brings its sender's key. The first key that an address is seen with is
// pinned (trust on first use, see [PinStore]); another key never replaces it
// silently. An address of 16 characters that is the hash of a key is only ever
// believed with that key, so that a relay cannot be in between even the first time.
//
// Who has to write to somebody whose key is not known asks for it: a message with
// his own key and an empty ct, which a Client answers in kind. [Client.Send] does
// so, and waits.
//
// # What is promised
//
// Nothing is answered for a message that a relay hands over at once. That it
// arrived is known when the recipient says so, with [Client.Ack]: without it, a
// message that was on its way when a connection broke may or may not have arrived.
// What comes in is either an event or, if the same box came before, dropped; what
// cannot be opened is an event too ([Unreadable]).
//
// # Datagrams
//
// Over datagrams the registration is sent until it is answered, and every later
// datagram carries the address and the newest token. As soon as there is a new
// token, and then every Keepalive, the Client unsubscribes from a random topic to
// which nobody has subscribed: that changes nothing, brings the token back, and is
// answered, which shows that the session is still there. What is asked of the relay
// is asked again until it is answered; messages are not sent again.
type Client struct {
	o    ClientOptions
	addr string
	key  *crypto.X25519PrivateKey
	rate *rate.Limiter
	dial transport.Dialer

	in    *clientEvents
	out   *clientOutbox
	peers *clientPeers

	online chan struct{} // closed at the first registration
	done   chan struct{} // closed when all goroutines have ended
	life   context.Context
	kill   context.CancelFunc

	mu      sync.Mutex
	err     error // why it ended
	last    error // why there is no connection
	calls   []*clientCall
	rooms   map[string]bool // joined
	filters map[string]bool // subscribed to
}

// Times that nobody has to set.
const (
	clientWriteTimeout = 30 * time.Second // without any progress
	lastWordsTime      = time.Second      // to read why nothing can be written
	askAgain           = 10 * time.Second // for a key; and how often one is told
)

// ClientOptions say who a Client is and how it goes about it. Zero fields mean
// what is said there. Connect copies them; what they point to is not changed as
// long as the Client lives.
type ClientOptions struct {
	// Address is the address to register. With a Key, it is bound to it: nobody can
	// register it without that key, as long as it is used every 90 days. Without,
	// anybody can. Empty: the address that is the hash of Key.
	Address string

	// Key opens what comes in, and is told to peers. Nil: a new one, of which the
	// relay is told nothing; peers that have pinned the one before will object.
	Key *crypto.X25519PrivateKey

	// Token is for a relay with a policy that wants one.
	Token string

	// Prove asks the relay to have us prove that Key is ours, after which nobody
	// else can register it. A relay without an identity does not ask; see
	// [Connected].
	Prove bool

	// Relay is the key that a relay that asks for the proof must have, if it is
	// known. Nil: the one that it had when it first asked, at RelayAddress (trust on
	// first use). Trust remembers those; nil: a memory of this Client's own.
	Relay        *crypto.PublicKey
	RelayAddress string
	Trust        handshake.TrustStore

	// Pins remembers the keys of peers. Nil: a [MemoryPins] of this Client's own.
	Pins PinStore

	// XChaCha has messages sealed with XChaCha20 in the place of XSalsa20, for peers
	// that want it (libsodium's crypto_box_curve25519xchacha20poly1305). Both are
	// opened, whatever this says.
	XChaCha bool

	// Reconnect has the Client register again when its connection is lost, rejoin
	// its rooms and renew its subscriptions. Before attempt n, from 0, it waits a
	// random time of at most BackoffMin·2ⁿ and BackoffMax (500 ms and 30 s). Without
	// it the Client ends with its connection.
	Reconnect              bool
	BackoffMin, BackoffMax time.Duration

	// RegisterTimeout bounds dialling and registering (30 s).
	RegisterTimeout time.Duration

	// MessageRate is how many messages are sent per second, and MessageBurst how
	// many at once (18 and 16). What exceeds the relay's rate, 20 and 20 by default,
	// it refuses.
	MessageRate  float64
	MessageBurst int

	// MessageBytes is how long a message may be as JSON: 65,536, and 16,384 in
	// datagrams. A longer one would end the connection.
	MessageBytes int

	// Keepalive is the time between signs of life in a session of datagrams, which
	// the relay forgets after 5 minutes, and routers on the way often after 30 s
	// (25 s).
	Keepalive time.Duration
}

// Connect returns a Client that is registered. What the relay has kept for it, and
// all else, comes as events from then on, and Connect does not wait for it. Without
// Reconnect there is one attempt; with it, ctx bounds the attempts, unless the relay
// refuses for good. Once Connect has returned, ctx does not matter any more: end the
// Client with Close.
//
// The error is a *[RelayError] when the relay refused the registration, a
// *handshake.KeyMismatchError when it is another relay that asks for a proof, and
// wraps ctx's error when the time was up.
func Connect(ctx context.Context, dial transport.Dialer, o *ClientOptions) (*Client, error) {
	if dial == nil {
		return nil, errors.New("json: Connect has no Dialer") // here, since a panic in a goroutine of ours would end the program
	}
	c, err := newClient(dial, o)
	if err != nil {
		return nil, err
	}
	go c.run()
	select {
	case <-c.online:
		return c, nil
	case <-c.life.Done():
		<-c.done
		return nil, c.Err()
	case <-ctx.Done():
		_ = c.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.last == nil {
			return nil, fmt.Errorf("json: not registered: %w", ctx.Err())
		}
		return nil, fmt.Errorf("json: not registered: %w: %w", ctx.Err(), c.last)
	}
}

func newClient(dial transport.Dialer, options *ClientOptions) (*Client, error) {
	o, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{
		o: o, dial: dial,
		addr: o.Address, key: o.Key,
		rate:    rate.NewLimiter(rate.Limit(o.MessageRate), o.MessageBurst),
		in:      newClientEvents(),
		out:     newClientOutbox(),
		online:  make(chan struct{}),
		done:    make(chan struct{}),
		rooms:   make(map[string]bool),
		filters: make(map[string]bool),
	}
	if c.key == nil {
		if c.key, err = crypto.GenerateX25519(); err != nil {
			return nil, err
		}
	}
	if c.addr == "" {
		c.addr = c.key.Public().Address()
	}
	c.peers = newClientPeers(c.addr, c.key, &o)
	c.life, c.kill = context.WithCancel(context.Background())
	return c, nil
}

func (o ClientOptions) withDefaults() (ClientOptions, error) {
	switch {
	case o.Address == "" && o.Key == nil:
		return o, errors.New("json: ClientOptions has neither Address nor Key")
	case o.Prove && o.Key == nil:
		return o, errors.New("json: ClientOptions has nothing to Prove without a Key")
	case o.Trust != nil && o.RelayAddress == "":
		return o, errors.New("json: ClientOptions has a Trust and no RelayAddress")
	}
	if o.Trust == nil {
		o.Trust, o.RelayAddress = new(handshake.MemoryTrust), "relay"
	}
	if o.Pins == nil {
		o.Pins = new(MemoryPins)
	}
	orElse(&o.BackoffMin, 500*time.Millisecond)
	orElse(&o.BackoffMax, 30*time.Second)
	orElse(&o.RegisterTimeout, 30*time.Second)
	orElse(&o.MessageRate, 18)
	orElse(&o.MessageBurst, 16)
	orElse(&o.Keepalive, 25*time.Second)
	return o, nil
}

func orElse[T int | float64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Address returns the address that the Client is registered under.
func (c *Client) Address() string { return c.addr }

// Key returns the key that messages to the Client are sealed to. People can compare
// keys by their [crypto.X25519Key.Address], which is 16 characters.
func (c *Client) Key() crypto.X25519Key { return c.key.Public() }

// Err returns why the Client has ended, nil if it has not: net.ErrClosed after
// Close, else what Connect or reading failed with. That is a *[RelayError] if the
// relay said why.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the Client, and what waits in its methods, with net.ErrClosed. The
// events that have come in can still be taken. It may be called any number of
// times, and returns nil when everything has ended.
//
// A relay is not told of the end of a session of datagrams: it sends what comes in
// the next 5 minutes to nobody, unless the address is registered again.
func (c *Client) Close() error {
	c.end(net.ErrClosed)
	<-c.done
	return nil
}

// end ends the Client. Only the first call counts.
func (c *Client) end(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	calls := c.calls
	c.calls = nil
	c.mu.Unlock()
	c.kill()
	c.out.close(err)
	for _, k := range calls {
		k.finish(err)
	}
}
