package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport"
)

// window is how many messages of a pair are under way: enough to keep a relay
// busy, and not so many that they wait for one another more than for it.
const window = 64

// sealedHead is what stands before the content of a SEALED frame: the recipient,
// and as much as a seal has (spec native.md, "Sealing": suite, key id, enc). The
// content of a bench is not sealed, since that would measure the clients; a relay
// cannot tell.
const sealedHead = 32 + 1 + 8 + 32

// minSize is that of a sealed message without content, its tag: with less a relay
// takes a frame for malformed. The time at which a message was due fits in.
const minSize = 16

func (b *bench) frameSize() int { return frame.BrepHeaderSize + sealedHead + b.size }

// A pair is a sender and its recipient.
type pair struct {
	from, to *brep.Client
	payload  []byte
	slots    chan struct{} // a token for each message under way
	took     histogram     // owned by the recipient until it is done
	begin    time.Time
}

// counts are shared by all pairs.
type counts struct{ sent, received atomic.Uint64 }

// measure runs the load. A rate of zero is as fast as it goes.
func (b *bench) measure(ctx context.Context, perSecond float64) error {
	dial, err := b.dialer()
	if err != nil {
		return err
	}
	pairs, err := b.connectAll(ctx, dial)
	closeAll := func() {
		for _, p := range pairs {
			p.close()
		}
	}
	defer closeAll()
	if err != nil {
		return err
	}
	sending, stop := context.WithTimeout(ctx, b.duration)
	defer stop()
	var (
		n                 counts
		senders, drainers sync.WaitGroup
		begin             = time.Now()
	)
	for _, p := range pairs {
		p.begin = begin
		senders.Go(func() { p.send(sending, perSecond, b.count, &n) })
		drainers.Go(func() { p.receive(&n) })
	}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		senders.Wait()
		for _, p := range pairs {
			p.settle(ctx)
		}
	}()
	b.watch(finished, begin, &n)
	elapsed := time.Since(begin)
	closeAll()
	drainers.Wait()
	if ctx.Err() != nil {
		return errInterrupted
	}
	var all histogram
	for _, p := range pairs {
		all.merge(&p.took)
	}
	return b.result(elapsed, perSecond, &n, &all)
}

func (b *bench) result(elapsed time.Duration, perSecond float64, n *counts, all *histogram) error {
	ms := func(q float64) float64 { return float64(all.quantile(q)) / 1e6 }
	received := n.received.Load()
	err := b.print(&benchResult{
		Relay: b.address, Pairs: b.pairs, Size: b.size, Rate: perSecond,
		Seconds: elapsed.Seconds(), Sent: n.sent.Load(), Received: received,
		PerSecond: float64(received) / elapsed.Seconds(),
		Megabytes: float64(received) * float64(b.size) / elapsed.Seconds() / 1e6,
		P50:       ms(0.5), P90: ms(0.9), P99: ms(0.99), P999: ms(0.999), Max: float64(all.max) / 1e6,
	})
	if lost := n.sent.Load() - received; err == nil && lost > 0 {
		err = fmt.Errorf("%d messages did not arrive: see the relay's log and limits", lost)
	}
	return err
}

// connectAll returns what pairs it has made, also with an error.
func (b *bench) connectAll(ctx context.Context, dial transport.Dialer) (pairs []*pair, err error) {
	for range b.pairs {
		p, err := b.connect(ctx, dial)
		switch {
		case err != nil && ctx.Err() != nil:
			return pairs, errInterrupted
		case err != nil:
			return pairs, fmt.Errorf("pair %d of %d: %w", len(pairs)+1, b.pairs, err)
		}
		pairs = append(pairs, p)
	}
	return pairs, nil
}

func (b *bench) connect(ctx context.Context, dial transport.Dialer) (*pair, error) {
	to, address, err := b.client(ctx, dial)
	if err != nil {
		return nil, err
	}
	from, _, err := b.client(ctx, dial)
	if err != nil {
		_ = to.Close()
		return nil, err
	}
	p := &pair{from: from, to: to, payload: make([]byte, sealedHead+b.size), slots: make(chan struct{}, window)}
	copy(p.payload, address[:])
	return p, nil
}

// client logs a fresh identity in.
func (b *bench) client(ctx context.Context, dial transport.Dialer) (*brep.Client, crypto.PublicKey, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	id, err := crypto.GenerateIdentity()
	if err != nil {
		return nil, crypto.PublicKey{}, err
	}
	conn, err := dial(ctx)
	if err != nil {
		return nil, crypto.PublicKey{}, err
	}
	c, err := brep.Connect(ctx, conn, &brep.ClientOptions{Identity: id, Expect: b.relayKey})
	return c, id.Public(), err
}

func (p *pair) close() {
	_ = p.from.Close()
	_ = p.to.Close()
}

// send sends until ctx ends, count are sent (unless that is zero), or it fails,
// which shows in what arrives.
func (p *pair) send(ctx context.Context, perSecond float64, count int, n *counts) {
	pace := rate.NewLimiter(rate.Inf, 1)
	if perSecond > 0 {
		pace.SetLimit(rate.Limit(perSecond))
	}
	// Without an id nothing is acknowledged: it is the way through the relay that is
	// measured, and not how soon the recipient's client says that it has the message.
	f := &frame.Brep{Type: frame.TypeSealed, Payload: p.payload}
	for i := 0; count == 0 || i < count; i++ {
		if pace.Wait(ctx) != nil {
			return
		}
		due := time.Since(p.begin) // waiting for a slot counts: the relay is late then
		select {
		case p.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		binary.BigEndian.PutUint64(p.payload[sealedHead:], uint64(due))
		if p.from.Send(ctx, f) != nil {
			<-p.slots
			return
		}
		n.sent.Add(1)
	}
}

// receive notes how long messages took, until the connection ends.
func (p *pair) receive(n *counts) {
	for {
		f, err := p.to.Receive()
		if err != nil {
			return
		}
		if f.Type != frame.TypeSealed || len(f.Payload) != len(p.payload) {
			continue
		}
		due := time.Duration(binary.BigEndian.Uint64(f.Payload[sealedHead:]))
		p.took.add(time.Since(p.begin) - due)
		n.received.Add(1)
		select {
		case <-p.slots:
		default:
		}
	}
}

// settle waits until what is under way has arrived, or nothing comes any more.
func (p *pair) settle(ctx context.Context) {
	const quiet = time.Second
	late := time.NewTimer(quiet)
	defer late.Stop()
	for range cap(p.slots) {
		select {
		case p.slots <- struct{}{}: // all of them: none is under way
			late.Reset(quiet)
		case <-late.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// watch returns when it is finished, and shows meanwhile how far it has come, if
// there is a terminal.
func (b *bench) watch(finished <-chan struct{}, begin time.Time, n *counts) {
	const often = 500 * time.Millisecond
	look := time.NewTicker(often)
	defer look.Stop()
	for {
		select {
		case <-finished:
			if b.p.terminal {
				fmt.Fprint(b.p.stderr, "\r\x1b[K")
			}
			return
		case <-look.C:
			if b.p.terminal {
				fmt.Fprintf(b.p.stderr, "\r\x1b[K%v: %d messages", time.Since(begin).Round(often), n.received.Load())
			}
		}
	}
}
