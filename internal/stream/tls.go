package stream

import (
	"context"
	"crypto/tls"
	"net"
)

// ClientTLS shakes hands with the server at address, over nc, which it closes if
// that fails. config may be nil; without a ServerName it is that of the address.
func ClientTLS(ctx context.Context, nc net.Conn, config *tls.Config, address string) (*tls.Conn, error) {
	config = config.Clone()
	if config == nil {
		config = new(tls.Config)
	}
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	t := tls.Client(nc, config)
	if err := t.HandshakeContext(ctx); err != nil {
		nc.Close()
		return nil, err
	}
	return t, nil
}
