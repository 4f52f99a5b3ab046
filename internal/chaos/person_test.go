package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay/client"
	"github.com/sotto-relay/sotto/relay/relaytest"
	"github.com/sotto-relay/sotto/transport"
)

// A person is an application with a client, behind a bad network. When it dies,
// what is left is its identity and its store.
type person struct {
	t     *testing.T
	name  string
	id    *crypto.Identity
	net   *relaytest.Network
	cfg   client.Config
	book  *ledger
	names map[crypto.PublicKey]string
	disk  inbox.State

	mu     sync.Mutex // held while it is dead
	c      *client.Client
	store  *mortal
	wg     sync.WaitGroup
	deaths int
}

func newPerson(t *testing.T, name string, net *relaytest.Network, dial transport.Dialer, relay crypto.PublicKey, book *ledger) *person {
	id, err := crypto.GenerateIdentity()
	require.NoError(t, err)
	return &person{
		t: t, name: name, id: id, net: net, book: book, disk: inbox.NewMemoryState(nil),
		cfg: client.Config{
			Identity: id, Dial: dial, Relay: &relay, StartOffline: true,
			PingInterval: 200 * time.Millisecond, BackoffMin: 5 * time.Millisecond, BackoffMax: 200 * time.Millisecond,
			MessageRate: 1e5, MessageBurst: 1e5, ByteRate: 1e9, ByteBurst: 1e9,
			Logger: slog.New(slog.DiscardHandler),
		},
	}
}

// live gives it a client.
func (p *person) live() {
	p.store = &mortal{State: p.disk, end: make(chan struct{})}
	cfg := p.cfg
	store := p.store
	cfg.Store = store
	cfg.Dial = func(ctx context.Context) (transport.Conn, error) {
		conn, err := p.cfg.Dial(ctx)
		if err == nil && store.dead.Load() {
			_ = conn.Close(transport.CloseNormal, "")
			return nil, errDead
		}
		return conn, err
	}
	cfg.Trace = &client.Trace{
		Dropped: func(_ crypto.PublicKey, why error) { p.fault("dropped: %v", why) },
		Settled: func(_ crypto.PublicKey, _ client.Receipt, err error) {
			if err != nil && !errors.Is(err, client.ErrClosed) {
				p.fault("settled: %v", err)
			}
		},
	}
	c, err := client.New(context.Background(), &cfg)
	require.NoError(p.t, err)
	p.c = c
	p.wg.Go(func() {
		err := c.Handle(context.Background(), func(_ context.Context, l *client.Letter) error {
			if store.dead.Load() {
				return errDead
			}
			p.read(l)
			return nil
		})
		if !errors.Is(err, client.ErrClosed) && !errors.Is(err, errDead) {
			p.fault("ended: %v", err)
		}
	})
}

func (p *person) read(l *client.Letter) {
	var n int
	if _, err := fmt.Sscan(l.Text(), &n); err != nil {
		p.fault("letter: %v", err)
	}
	p.book.arrive(route{p.names[l.From], p.name}, n)
}

// send sends the next message to somebody.
func (p *person) send(to *person) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := route{p.name, to.name}
	n := p.book.next(r)
	_, err := p.c.Send(context.Background(), to.id.Public(), client.Text(fmt.Sprint(n)), client.NoWait())
	if err != nil {
		p.fault("send: %v", err)
	}
}

// die ends it, from one moment to the next, as far as anybody can tell from
// outside, and has it live again.
func (p *person) die() {
	p.mu.Lock()
	defer p.mu.Unlock()
	store := p.store
	store.dead.Store(true)
	p.net.Cut()
	time.AfterFunc(10*time.Millisecond, func() { close(store.end) }) // Close waits for what waits
	_ = p.c.Close()
	p.wg.Wait()
	p.book.die(p.name)
	p.deaths++
	p.live()
}

func (p *person) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.c.Close()
	p.wg.Wait()
}

func (p *person) fault(format string, args ...any) {
	p.book.mu.Lock()
	defer p.book.mu.Unlock()
	p.book.faults = append(p.book.faults, p.name+": "+fmt.Sprintf(format, args...))
}

// A mortal store takes nothing once it is dead, and nobody learns that: who waits
// for it waits until the end of its owner.
type mortal struct {
	inbox.State
	dead atomic.Bool
	end  chan struct{}
}

var errDead = errors.New("dead")

func (m *mortal) Put(ctx context.Context, bucket, key string, value []byte) error {
	if m.dead.Load() {
		<-m.end
		return errDead
	}
	return m.State.Put(ctx, bucket, key, value)
}

func (m *mortal) Delete(ctx context.Context, bucket, key string) error {
	if m.dead.Load() {
		<-m.end
		return errDead
	}
	return m.State.Delete(ctx, bucket, key)
}
