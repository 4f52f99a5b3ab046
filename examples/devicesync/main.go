// Devicesync is a small document on three devices that keep it in step through a
// blind relay: what they send each other is sealed, and the relay sees opaque keys
// and sizes.
//
//	go run ./examples/devicesync
//
// runs the relay and the devices in this process, over pipes; with -url the devices
// connect to a relay that speaks the blind dialect, over WebSocket. Two write at the
// same time; a third is paired with the help of an invitation, as a camera would
// read it from a screen, and catches up; then all three write while the key is
// rotated twice and one of them loses its connection. In the end all have
// everything. The exit code is 1 if they have not.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/blind"
	"github.com/sotto-relay/sotto/relay/dialect/blind/audit"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
	"github.com/sotto-relay/sotto/transport/ws"
)

func main() {
	url := flag.String("url", "", "the `URL` of a relay, such as ws://localhost:7710/blind; without it there is one in this process")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *url); err != nil {
		fmt.Fprintln(os.Stderr, "devicesync:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if url != "" {
		return share(ctx, out, ws.Dialer(url, nil))
	}
	deliveries := new(audit.Log)
	srv := &relay.Server{Logger: slog.New(slog.DiscardHandler)}
	defer srv.Close()
	network := pipe.Listen()
	go func() { _ = srv.Serve(network, blind.Dialect{Audit: deliveries}) }() // until Close
	if err := share(ctx, out, network.Dial); err != nil {
		return err
	}
	keys, kinds := make(map[string]bool), make(map[string]bool)
	for _, line := range deliveries.Recent() {
		keys[line.Entity], kinds[line.Kind] = true, true
	}
	fmt.Fprintf(out, "the relay saw %d opaque keys, sizes, and frames of the kinds %s\n",
		len(keys), strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	return nil
}

// share lets the devices do what the program is about.
func share(ctx context.Context, out io.Writer, dial transport.Dialer) error {
	ctx, leave := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer leave()
	start := func(name string, ring *keyring) *device {
		d := newDevice(name, ring, dial)
		running.Go(func() { d.receive(ctx) })
		running.Go(func() { d.send(ctx) })
		return d
	}

	// These two have been paired before.
	document := newSecret(1)
	laptop, phone := start("laptop", newKeyring()), start("phone", newKeyring())
	for _, d := range []*device{laptop, phone} {
		d.adopt(bootstrap{Secret: document, Members: []string{laptop.ring.name(), phone.ring.name()}})
	}
	if err := write(ctx, 50, laptop, phone); err != nil {
		return err
	}
	if err := inStep(ctx, 100, laptop, phone); err != nil {
		return err
	}
	fmt.Fprintln(out, "laptop and phone have written at the same time, and both have 100 entries")

	tablet := start("tablet", newKeyring())
	if err := tablet.join(ctx, laptop.invite()); err != nil {
		return err
	}
	if err := inStep(ctx, 100, laptop, phone, tablet); err != nil {
		return err
	}
	fmt.Fprintln(out, "the tablet came later, was let in by the laptop, and has them too")

	writing := make(chan error, 1)
	go func() { writing <- write(ctx, 100, laptop, phone, tablet) }()
	for range 2 {
		time.Sleep(150 * time.Millisecond)
		if err := laptop.rotate(ctx); err != nil {
			return err
		}
	}
	phone.cut()
	if err := <-writing; err != nil {
		return err
	}
	if err := inStep(ctx, 400, laptop, phone, tablet); err != nil {
		return err
	}
	fmt.Fprintln(out, "all three wrote while the key was rotated twice and the phone lost its connection, and all have 400 entries")
	return nil
}

// write has each device write n entries.
func write(ctx context.Context, n int, devices ...*device) error {
	errs := make(chan error, len(devices))
	for _, d := range devices {
		go func() {
			var err error
			for i := 0; i < n && err == nil; i++ {
				err = d.write(ctx, fmt.Sprintf("%s was here (%d)", d.name, i))
				time.Sleep(5 * time.Millisecond)
			}
			errs <- err
		}()
	}
	var err error
	for range devices {
		if e := <-errs; e != nil {
			err = e
		}
	}
	return err
}

// inStep waits until all devices have the same document, with n entries.
func inStep(ctx context.Context, n int, devices ...*device) error {
	for {
		first, same := devices[0].entries(), true
		for _, d := range devices[1:] {
			same = same && maps.Equal(first, d.entries())
		}
		if same && len(first) == n {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			var have []string
			for _, d := range devices {
				have = append(have, fmt.Sprintf("%s has %d", d.name, len(d.entries())))
			}
			return fmt.Errorf("not in step, of %d entries %s: %w", n, strings.Join(have, ", "), ctx.Err())
		}
	}
}
