package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sotto-relay/sotto/crypto"
)

func (p *program) benchCommand() *cli.Command {
	return &cli.Command{
		Name:      "bench",
		Usage:     "measure a relay",
		ArgsUsage: "URL",
		Description: "Sends messages between pairs of fresh identities and shows how many arrive and how\n" +
			"long they take. A relay that is not ours is kept below its default rates, so what is\n" +
			"measured there is latency. With --local there is a relay for the purpose, without\n" +
			"limits, in the same process as its clients.",
		Flags: []cli.Flag{
			p.boolFlag("local", "measure a relay of its own on this machine"),
			p.relayKeyFlag(),
			p.caFlag(),
			p.intFlag("pairs", 4, "`NUMBER` of senders, each with a recipient"),
			p.intFlag("size", 128, "`BYTES` of content in each message"),
			p.durationFlag("duration", 5*time.Second, "`TIME` to send for"),
			p.intFlag("count", 0, "`NUMBER` of messages after which a sender is done (default as many as fit)"),
			p.boolFlag("json", "print JSON"),
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			b, err := p.parseBench(cmd)
			if err != nil {
				return usage(ctx, cmd, err, true)
			}
			return failed(b.run(ctx))
		},
	}
}

// A bench is what bench was asked for.
type bench struct {
	*remote  // nil: a relay of its own
	p        *program
	relayKey *crypto.PublicKey
	pairs    int
	size     int
	duration time.Duration
	count    int // zero: no bound
	json     bool
}

// What bench may be asked for, so that it stays within memory and reason.
const (
	maxPairs    = 250 // 500 connections: half of what a relay takes of one source by default
	maxSize     = 1 << 20
	maxDuration = 10 * time.Minute
)

func (p *program) parseBench(cmd *cli.Command) (*bench, error) {
	b := &bench{
		p: p, pairs: cmd.Int("pairs"), size: cmd.Int("size"),
		duration: cmd.Duration("duration"), count: cmd.Int("count"), json: cmd.Bool("json"),
	}
	switch isLocal := cmd.Bool("local"); {
	case isLocal && cmd.Args().Present():
		return nil, errors.New("--local needs no URL")
	case !isLocal && cmd.NArg() != 1:
		return nil, errors.New("bench wants one argument, the URL of a relay, or --local")
	case isLocal && (cmd.String("ca") != "" || cmd.String("relay-key") != ""):
		return nil, errors.New("--local needs neither --ca nor --relay-key")
	case !isLocal:
		r, err := parseRemote("URL", cmd.Args().First(), cmd.String("ca"))
		if err != nil {
			return nil, err
		}
		b.remote = r
	}
	var err error
	if b.relayKey, err = parseRelayKey(cmd); err != nil {
		return nil, err
	}
	switch {
	case b.pairs < 1 || b.pairs > maxPairs:
		return nil, fmt.Errorf("--pairs is from 1 to %d, not %d", maxPairs, b.pairs)
	case b.size < minSize || b.size > maxSize:
		return nil, fmt.Errorf("--size is from %d to %d bytes, not %d", minSize, maxSize, b.size)
	case b.duration <= 0 || b.duration > maxDuration:
		return nil, fmt.Errorf("--duration is above 0 and up to %v, not %v", maxDuration, b.duration)
	case b.count < 0:
		return nil, fmt.Errorf("--count %d is less than nothing", b.count)
	}
	return b, nil
}

func (b *bench) run(ctx context.Context) error {
	if b.remote == nil {
		relay, err := b.startRelay(ctx)
		if err != nil {
			return err
		}
		defer relay.stop()
		b.remote = relay.remote
		return b.measure(ctx, 0)
	}
	return b.measure(ctx, b.politeRate())
}

// politeRate is how many messages a second a sender may send to a relay of
// somebody else: half of what it takes of one connection by default (spec
// brep.md, "Frame"), so that those which the network has held up may come at once.
func (b *bench) politeRate() float64 {
	l := defaultLimits().dialects["brep"]
	return min(l.MessageRate/2, l.ByteRate/2/float64(b.frameSize()))
}

// A localRelay runs in this process.
type localRelay struct {
	remote *remote
	cancel context.CancelFunc
	ended  chan error
}

func (b *bench) startRelay(ctx context.Context) (*localRelay, error) {
	log, err := newLogger(b.p.stderr, "error", "text")
	if err != nil {
		return nil, err
	}
	limits, err := parseLimits("off", nil)
	if err != nil {
		return nil, err
	}
	ready := make(chan string, 1)
	s := &service{
		p: b.p, listen: []*endpoint{{scheme: "ws", host: "127.0.0.1:0", dialect: "brep"}}, limits: limits, log: log,
		onReady: func(r *readiness) { ready <- r.Listeners[0].URL },
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &localRelay{cancel: cancel, ended: make(chan error, 1)}
	go func() { r.ended <- s.run(ctx) }()
	select {
	case err := <-r.ended:
		cancel()
		if err == nil {
			err = errInterrupted
		}
		return nil, err
	case url := <-ready:
		if r.remote, err = parseRemote("URL", url, ""); err != nil {
			r.stop()
			return nil, err
		}
		return r, nil
	}
}

func (r *localRelay) stop() {
	r.cancel()
	<-r.ended
}

// A benchResult is what bench prints.
type benchResult struct {
	Relay     string  `json:"relay"`
	Pairs     int     `json:"pairs"`
	Size      int     `json:"size"`           // of content, in bytes
	Rate      float64 `json:"rate,omitempty"` // that each sender kept to, a second; none if it did not
	Seconds   float64 `json:"seconds"`
	Sent      uint64  `json:"sent"`
	Received  uint64  `json:"received"`
	PerSecond float64 `json:"messages_per_second"`
	Megabytes float64 `json:"megabytes_per_second"` // of content, in 10^6 bytes
	P50       float64 `json:"p50_ms"`
	P90       float64 `json:"p90_ms"`
	P99       float64 `json:"p99_ms"`
	P999      float64 `json:"p99_9_ms"`
	Max       float64 `json:"max_ms"`
}

func (b *bench) print(r *benchResult) error {
	if b.json {
		return writeJSON(b.p.stdout, r)
	}
	pace := "as fast as it goes"
	if r.Rate > 0 {
		pace = fmt.Sprintf("%.4g messages/s each", r.Rate)
	}
	_, err := fmt.Fprintf(b.p.stdout, `relay       %s
load        %d pairs, %d bytes, %s
messages    %d sent, %d received, in %.2f s
throughput  %.0f messages/s, %.2f MB/s
latency ms  p50 %.3f  p90 %.3f  p99 %.3f  p99.9 %.3f  max %.3f
`, r.Relay, r.Pairs, r.Size, pace, r.Sent, r.Received, r.Seconds, r.PerSecond, r.Megabytes, r.P50, r.P90, r.P99, r.P999, r.Max)
	return err
}
