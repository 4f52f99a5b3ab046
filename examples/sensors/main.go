// Sensors is a house with sensors and a dashboard. Each sensor publishes its latest
// value as a retained one, so that a dashboard that is switched on later has all of
// them at once, and then what changes. The relay matches topics; it cannot read the
// values, for which sensors and dashboard share a key.
//
//	go run ./examples/sensors
//
// runs to its end by itself, with a relay of its own. With a relay that others reach
// too (a ws, tcp or udp URL),
//
//	go run ./examples/sensors -relay ws://127.0.0.1:8080/json -publish home/attic/temperature
//
// publishes each line of its input, and prints the command with which
//
//	go run ./examples/sensors -relay ws://127.0.0.1:8080/json -key KEY -watch 'home/#'
//
// shows them somewhere else.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/signal"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/jsonmsg"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/tcp"
	"github.com/sotto-relay/sotto/transport/udp"
	"github.com/sotto-relay/sotto/transport/ws"
)

func main() {
	address := flag.String("relay", "", "the `URL` of a relay; without it the program plays by itself")
	topic := flag.String("publish", "", "the `TOPIC` to publish the lines of the input to")
	filter := flag.String("watch", "#", "the `FILTER` of what to show: + is one level, # is all that follow")
	secret := flag.String("key", "", "the `KEY` that sensors and dashboards share; without it a new one is made")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *address == "" {
		err = play(ctx, os.Stdout)
	} else {
		err = use(ctx, *address, *topic, *filter, *secret)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "sensors:", err)
		os.Exit(1)
	}
}

// use is a sensor or a dashboard of a relay of somebody's.
func use(ctx context.Context, address, topic, filter, secret string) error {
	dial, err := dialer(address)
	if err != nil {
		return err
	}
	if secret == "" {
		secret = newSecret()
		fmt.Printf("to watch: go run ./examples/sensors -relay %s -key %s -watch '#'\n", address, secret)
	}
	key, err := parseKey(secret)
	if err != nil {
		return fmt.Errorf("-key is none: %w", err)
	}
	d, err := connect(ctx, dial, key)
	if err != nil {
		return err
	}
	defer d.client.Close()
	if topic == "" {
		if err := d.client.Subscribe(ctx, filter); err != nil {
			return err
		}
		return d.show(ctx, os.Stdout, 0)
	}
	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
		if err := d.publish(ctx, topic, s.Text()); err != nil {
			return err
		}
	}
	return nil
}

// dialer returns the way to a relay, by the medium that its URL names.
func dialer(address string) (transport.Dialer, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	switch u.Scheme {
	case "ws", "wss":
		return ws.Dialer(address, nil), nil
	case "tcp":
		return tcp.Dialer(u.Host, jsonmsg.Framing{}, nil), nil
	case "udp":
		return udp.Dialer(u.Host, nil), nil
	}
	return nil, errors.New("the relay's URL is none of ws, wss, tcp and udp")
}

// A device is a sensor or a dashboard.
type device struct {
	client *jsonmsg.Client
	key    *jsonmsg.SharedKey
}

// connect registers a device under an address that nobody has to know.
func connect(ctx context.Context, dial transport.Dialer, key *jsonmsg.SharedKey) (*device, error) {
	c, err := jsonmsg.Connect(ctx, dial, &jsonmsg.ClientOptions{Address: rand.Text(), Reconnect: true})
	if err != nil {
		return nil, err
	}
	return &device{c, key}, nil
}

// publish seals a value and publishes it, to be kept by the relay. It has subscribed
// to what it publishes, so it hears when the relay has it.
func (d *device) publish(ctx context.Context, topic, value string) error {
	ct, err := d.key.Seal(topic, []byte(value))
	if err != nil {
		return err
	}
	if err := d.client.Subscribe(ctx, topic); err != nil {
		return err
	}
	if err := d.client.Publish(ctx, topic, ct, true); err != nil {
		return err
	}
	for event, err := range d.client.Events(ctx) {
		switch e := event.(type) {
		case nil:
			return err
		case *jsonmsg.Publication:
			if e.CT == ct {
				return nil
			}
		case *jsonmsg.RelayError:
			return e
		}
	}
	return ctx.Err()
}

// show shows what is published, n values of it if n is not 0.
func (d *device) show(ctx context.Context, out io.Writer, n int) error {
	for event, err := range d.client.Events(ctx) {
		if err != nil {
			return err
		}
		p, ok := event.(*jsonmsg.Publication)
		if !ok {
			continue
		}
		value, err := d.key.Open(p.Topic, p.CT)
		switch {
		case err != nil:
			fmt.Fprintf(out, "%q is not sealed with our key\n", p.Topic)
		case p.Retained:
			fmt.Fprintf(out, "%q was %q\n", p.Topic, value)
		default:
			fmt.Fprintf(out, "%q is %q\n", p.Topic, value)
		}
		if n--; n == 0 {
			return nil
		}
	}
	return ctx.Err()
}

// play has sensors, and a dashboard that comes late, at a relay of its own.
func play(ctx context.Context, out io.Writer) error {
	srv := &relay.Server{Logger: slog.New(slog.DiscardHandler)}
	defer srv.Close()
	dial := func(context.Context) (transport.Conn, error) { return srv.Dial(jsonmsg.Dialect{}), nil }
	key, err := parseKey(newSecret())
	if err != nil {
		return err
	}
	for _, now := range []struct{ topic, value string }{
		{"home/kitchen/temperature", "21.5"},
		{"home/kitchen/window", "open"},
		{"home/cellar/temperature", "11.0"},
		{"garden/gate", "closed"},
		{"home/kitchen/temperature", "20.9"}, // a topic has one retained value
	} {
		sensor, err := connect(ctx, dial, key)
		if err != nil {
			return err
		}
		err = sensor.publish(ctx, now.topic, now.value)
		_ = sensor.client.Close() // as sensors do that sleep most of the time
		if err != nil {
			return err
		}
	}

	dashboard, err := connect(ctx, dial, key)
	if err != nil {
		return err
	}
	defer dashboard.client.Close()
	for _, filter := range []struct {
		name    string
		matches int
	}{{"home/+/temperature", 2}, {"#", 4}} {
		fmt.Fprintf(out, "the dashboard subscribes to %s\n", filter.name)
		if err := dashboard.client.Subscribe(ctx, filter.name); err != nil {
			return err
		}
		if err := dashboard.show(ctx, out, filter.matches); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "somebody opens the gate")
	gate, err := connect(ctx, dial, key)
	if err != nil {
		return err
	}
	defer gate.client.Close()
	if err := gate.publish(ctx, "garden/gate", "open"); err != nil {
		return err
	}
	return dashboard.show(ctx, out, 1)
}

func newSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // does not fail
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func parseKey(secret string) (*jsonmsg.SharedKey, error) {
	b, err := base64.RawURLEncoding.DecodeString(secret)
	if err != nil {
		return nil, err
	}
	return jsonmsg.NewSharedKey(b)
}
