package transporttest

import "net"

// Segmented returns l with connections that read one byte at a time, as a network
// may deliver them, and after 20,000 bytes what there is: for media on a stream.
// They have a CloseWrite, which is for those of a *net.TCPListener.
func Segmented(l net.Listener) net.Listener { return segmented{l} }

type segmented struct{ net.Listener }

func (l segmented) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &segmentedConn{Conn: c}, nil
}

type segmentedConn struct {
	net.Conn
	reads int
}

func (c *segmentedConn) Read(b []byte) (int, error) {
	if c.reads++; c.reads <= 20_000 {
		b = b[:min(1, len(b))]
	}
	return c.Conn.Read(b)
}

func (c *segmentedConn) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }
