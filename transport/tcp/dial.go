package tcp

import (
	"context"
	"fmt"
	"net"

	"github.com/sotto-relay/sotto/internal/stream"
	"github.com/sotto-relay/sotto/transport"
)

// Dialer returns a function that connects to an address, HOST:PORT; o may be
// nil. The Conn is a [transport.TryWriter] and a [transport.Batcher].
func Dialer(address string, f transport.Framing, o *DialOptions) transport.Dialer {
	if o == nil {
		o = &DialOptions{}
	}
	options := o.ConnOptions.withDefaults()
	pools := new(stream.Pools)
	return func(ctx context.Context) (transport.Conn, error) {
		nc, err := o.open(ctx, address)
		if err != nil {
			return nil, fmt.Errorf("tcp: connecting to %s: %w", address, err)
		}
		keepAlive(nc)
		return newConn(nc, f, &options, pools), nil
	}
}

func (o *DialOptions) open(ctx context.Context, address string) (net.Conn, error) {
	open := o.Dial
	if open == nil {
		open = new(net.Dialer).DialContext
	}
	nc, err := open(ctx, "tcp", address)
	if err != nil || o.TLS == nil {
		return nc, err
	}
	return stream.ClientTLS(ctx, nc, o.TLS, address)
}
