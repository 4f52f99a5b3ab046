package ws

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sotto-relay/sotto/internal/stream"
	"github.com/sotto-relay/sotto/transport"
)

// DialOptions are for a Dialer.
type DialOptions struct {
	ConnOptions

	// TLS is for wss URLs; nil means the defaults of crypto/tls.
	TLS *tls.Config

	// Header is sent with the request. The token of [transport.WithToken] is added,
	// in the place of an Authorization in it.
	Header http.Header

	// Subprotocols are asked for, the best first.
	Subprotocols []string

	// Dial opens the network connection; nil means a net.Dialer. A name must be
	// resolved within it, so what it refuses to connect to is not connected to.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Dialer returns a function that connects to a ws or wss URL; o may be nil.
// Redirects are not followed and proxies not used. Errors name the host, not
// the rest of the URL.
//
// The Conn is a [transport.TryWriter] and a [transport.Batcher].
func Dialer(rawURL string, o *DialOptions) transport.Dialer {
	if o == nil {
		o = &DialOptions{}
	}
	options := o.ConnOptions.withDefaults()
	shared := new(stream.Pools)
	return func(ctx context.Context) (transport.Conn, error) {
		u, err := url.Parse(rawURL)
		if err != nil {
			return nil, errors.New("ws: malformed URL") // err would repeat it
		}
		c, err := dial(ctx, rawURL, o, &options, shared)
		if err != nil {
			return nil, fmt.Errorf("ws: connecting to %s: %w", u.Host, err)
		}
		return c, nil
	}
}

type openFunc func(ctx context.Context, network, address string) (net.Conn, error)

func dial(ctx context.Context, rawURL string, o *DialOptions, options *ConnOptions, shared *stream.Pools) (*conn, error) {
	var nc *answerConn
	watch := func(open openFunc) openFunc {
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := open(ctx, network, address)
			if err != nil {
				return nil, err
			}
			nc = &answerConn{Conn: c, br: bufio.NewReaderSize(c, stream.MaxFirst), left: maxAnswer}
			nc.stop = context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
			return nc, nil
		}
	}
	d := websocket.Dialer{
		NetDialContext:    watch(o.open),
		NetDialTLSContext: watch(o.openTLS),
		ReadBufferSize:    1, // gorilla only shakes hands
		WriteBufferPool:   new(sync.Pool),
		Subprotocols:      o.Subprotocols,
	}
	g, resp, err := d.DialContext(ctx, rawURL, o.header(ctx))
	if err == nil {
		err = checkAnswer(resp, o)
	} else if resp != nil {
		err = fmt.Errorf("%w: status %d", err, resp.StatusCode)
	}
	if nc == nil {
		return nil, err
	}
	if !nc.stop() {
		err = ctx.Err()
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	first, _ := nc.br.Peek(nc.br.Buffered())
	c := newConn(nc.Conn, true, options, shared, first)
	c.proto = g.Subprotocol()
	return c, nil
}

func (o *DialOptions) header(ctx context.Context) http.Header {
	token := transport.TokenOf(ctx)
	if token == "" {
		return o.Header
	}
	h := http.Header{}
	maps.Copy(h, o.Header)
	h.Set("Authorization", "Bearer "+token)
	return h
}

func (o *DialOptions) open(ctx context.Context, network, address string) (net.Conn, error) {
	if o.Dial != nil {
		return o.Dial(ctx, network, address)
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

func (o *DialOptions) openTLS(ctx context.Context, network, address string) (net.Conn, error) {
	nc, err := o.open(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return stream.ClientTLS(ctx, nc, o.TLS, address)
}

func checkAnswer(resp *http.Response, o *DialOptions) error {
	proto := resp.Header.Get("Sec-WebSocket-Protocol")
	switch {
	case len(resp.Header.Values("Sec-WebSocket-Extensions")) > 0:
		return errors.New("the server agreed to an extension that nobody asked for")
	case proto != "" && !slices.Contains(o.Subprotocols, proto):
		return errors.New("the server agreed to a subprotocol that nobody asked for")
	}
	return nil
}

// maxAnswer bounds what a server may answer to the request for an upgrade.
const maxAnswer = 64 << 10

// An answerConn gives a byte at a time, so that gorilla's buffer has no more
// than the answer to the request and the frames behind it stay in br.
type answerConn struct {
	net.Conn
	br   *bufio.Reader
	left int
	stop func() bool // stops watching the context
}

func (c *answerConn) Read(b []byte) (int, error) {
	if c.left == 0 {
		return 0, errors.New("the answer is too long")
	}
	c.left--
	return c.br.Read(b[:1])
}
