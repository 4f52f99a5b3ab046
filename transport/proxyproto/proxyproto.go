// Package proxyproto lets a listener stand behind load balancers that tell it
// about their clients with the PROXY protocol, versions 1 and 2 (HAProxy,
// "The PROXY protocol"): the connections have the addresses that the header
// names.
//
// It is for the accepting side only, and for byte streams. A trusted proxy must
// send a header on every connection, since a header that may or may not come
// would be for the client to make up, and it is believed from nobody else.
package proxyproto

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	pires "github.com/pires/go-proxyproto"

	"github.com/sotto-relay/sotto/internal/acceptor"
	"github.com/sotto-relay/sotto/internal/netaddr"
)

const (
	signature1 = "PROXY "
	signature2 = "\r\n\r\n\x00\r\nQUIT\n"

	shortest1, longest1 = 15, 107     // of a version 1 header: "PROXY UNKNOWN\r\n", and the worst case
	fixed2, longest2    = 16, 4 << 10 // of a version 2 header: the fixed part, and what we accept
)

var (
	errNoHeader  = errors.New("proxyproto: a trusted proxy sent no PROXY header")
	errMalformed = errors.New("proxyproto: malformed PROXY header")
	errUntrusted = errors.New("proxyproto: PROXY header from a peer that is no trusted proxy")
	errDirect    = errors.New("proxyproto: the peer is no trusted proxy")
)

// Options are for Listen. Zero numbers mean the defaults.
type Options struct {
	// Trusted are the proxies. A peer without an IP address, as over a Unix
	// socket, is none.
	Trusted []netip.Prefix

	// Required closes connections of all others. Without it they are direct ones,
	// and fail when they begin with a PROXY header.
	Required bool

	// Timeout is how long a header may take to come in (5 s), and Headers how
	// many may be awaited at a time (1,024). One more closes the one that has
	// taken longest.
	Timeout time.Duration
	Headers int

	// Refused, if not nil, is told of connections that were closed without having
	// come out of Accept. It may be called concurrently.
	Refused func(peer net.Addr, err error)
}

// Listen returns a listener for the connections of l, which it closes when it is
// closed; o must name the trusted proxies. Headers have been read when a
// connection comes out of Accept; none holds up another.
//
// RemoteAddr and LocalAddr are those of the header, unless it says that the
// connection is the proxy's own (LOCAL, UNKNOWN), as for a health check. At most
// 107 bytes of version 1 and 4 KiB of version 2 are read.
func Listen(l net.Listener, o *Options) net.Listener {
	c := acceptor.Config{
		Begin: func(nc net.Conn) (net.Conn, error) {
			switch {
			case netaddr.In(netaddr.Of(nc.RemoteAddr()), o.Trusted):
				return begin(nc)
			case o.Required:
				return nil, errDirect
			}
			return &direct{Conn: nc}, nil
		},
		Timeout: o.Timeout,
		Max:     o.Headers,
		Refused: o.Refused,
	}
	if c.Timeout <= 0 {
		c.Timeout = 5 * time.Second
	}
	if c.Max <= 0 {
		c.Max = 1024
	}
	return acceptor.New(l, c)
}

// begin reads the header of a trusted proxy.
func begin(nc net.Conn) (net.Conn, error) {
	b, err := readHeader(nc)
	if err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(bytes.NewReader(b), longest2)
	h, err := pires.Read(r)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	case h.Command.IsLocal():
		return nc, nil
	}
	remote, ok := h.SourceAddr.(*net.TCPAddr)
	if !ok {
		return nil, errMalformed // of datagrams, or of Unix sockets
	}
	return &proxied{Conn: nc, remote: remote, local: h.DestinationAddr}, nil
}

// readHeader reads the bytes of a header, and none of those behind it.
func readHeader(r io.Reader) ([]byte, error) {
	b := make([]byte, fixed2, 256)
	b = b[:shortest1] // a version 2 header has a byte more
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoHeader, err)
	}
	if bytes.HasPrefix(b, []byte(signature2)) {
		b = b[:fixed2]
		if _, err := io.ReadFull(r, b[shortest1:]); err != nil {
			return nil, fmt.Errorf("%w: %w", errMalformed, err)
		}
		rest := int(binary.BigEndian.Uint16(b[14:]))
		if fixed2+rest > longest2 {
			return nil, errMalformed
		}
		b = append(b, make([]byte, rest)...)
		if _, err := io.ReadFull(r, b[fixed2:]); err != nil {
			return nil, fmt.Errorf("%w: %w", errMalformed, err)
		}
		return b, nil
	}
	if !bytes.HasPrefix(b, []byte(signature1)) {
		return nil, errNoHeader
	}
	for bytes.IndexByte(b, '\n') < 0 {
		if len(b) == longest1 {
			return nil, errMalformed
		}
		b = append(b, 0)
		if _, err := io.ReadFull(r, b[len(b)-1:]); err != nil {
			return nil, fmt.Errorf("%w: %w", errMalformed, err)
		}
	}
	return b, nil
}
