package main

import (
	"fmt"
	"net"
	"strings"
)

// notify tells systemd, or whoever has set NOTIFY_SOCKET, how the service is:
// assignments such as READY=1 (sd_notify(3)). Without a socket it does nothing.
// The protocol is one datagram, so no module is worth it.
func (p *program) notify(assignments ...string) error {
	path, ok := p.env("NOTIFY_SOCKET")
	if !ok || path == "" {
		return nil
	}
	// net takes a leading "@" for an abstract socket, as systemd writes it.
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(strings.Join(assignments, "\n"))); err != nil {
		return fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	return nil
}
