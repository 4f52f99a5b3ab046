package tcp

import (
	"crypto/tls"
	"net"
	"time"

	"github.com/sotto-relay/sotto/internal/acceptor"
	"github.com/sotto-relay/sotto/internal/stream"
	"github.com/sotto-relay/sotto/transport"
)

// NewListener returns a listener for the connections of l, which it closes when
// it is closed; o may be nil. The Conns are [transport.TryWriter]s and
// [transport.Batcher]s.
//
// Errors of l are returned by Accept as they are.
func NewListener(l net.Listener, f transport.Framing, o *Options) transport.Listener {
	if o == nil {
		o = &Options{}
	}
	if o.TLS != nil {
		l = acceptor.New(l, acceptor.Config{
			Begin: func(nc net.Conn) (net.Conn, error) {
				t := tls.Server(nc, o.TLS)
				return t, t.Handshake()
			},
			Timeout: or(o.HandshakeTimeout, 10*time.Second),
			Max:     or(o.Handshakes, 1024),
			Refused: o.Refused,
		})
	}
	return &listener{Listener: l, framing: f, options: o.ConnOptions.withDefaults()}
}

func or[T ~int | ~int64](value, otherwise T) T {
	if value <= 0 {
		return otherwise
	}
	return value
}

type listener struct {
	net.Listener
	framing transport.Framing
	options ConnOptions
	pools   stream.Pools
}

func (l *listener) Accept() (transport.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	keepAlive(nc)
	return newConn(nc, l.framing, &l.options, &l.pools), nil
}

// keepAlive turns keep-alive on, whatever the listener or dialer thought of it.
func keepAlive(nc net.Conn) {
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	if t, ok := stream.Bare(nc).(*net.TCPConn); ok {
		t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true}) // a connection that is gone will show
	}
}
