package adversary

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/relay/relaytest"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
	"github.com/sotto-relay/sotto/transport/ws"
)

var full = flag.Bool("full", false, "attack in full size: minutes, and thousands of sockets")

// size is how many attackers there are.
func size(small, large int) int {
	if *full {
		return large
	}
	return small
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs a test in a synctest bubble. Connections that were closed have a
// minute of the bubble's to be gone.
func bubble(t *testing.T, f func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) })
		f(t)
	})
}

// identity returns identity number n.
func identity(t testing.TB, n byte) *crypto.Identity {
	t.Helper()
	id, err := crypto.IdentityFromSeed(bytes.Repeat([]byte{n}, 32))
	require.NoError(t, err)
	return id
}

// Identities of the cast.
const (
	honestRelay = 200
	evilRelay   = 201
	alice       = 1
	bob         = 2
	mallory     = 66
)

// A rig is an honest relay with the default configuration and an inbox.
type rig struct {
	t       testing.TB
	server  *relay.Server
	dialect brep.Dialect
}

func newRig(t testing.TB) *rig {
	r := &rig{
		t:       t,
		server:  &relay.Server{Inbox: inbox.NewMemory(nil), Logger: slog.New(slog.DiscardHandler)},
		dialect: brep.Dialect{Identity: identity(t, honestRelay)},
	}
	t.Cleanup(func() { _ = r.server.Close() })
	return r
}

// A placed is the end of a pipe with an address.
type placed struct {
	transport.Conn
	addr net.Addr
}

func (p placed) RemoteAddr() net.Addr { return p.addr }

// from connects over a pipe from an IP address.
func (r *rig) from(ip string) transport.Conn {
	near, far := pipe.New()
	addr := net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(ip), 1234))
	r.server.Speak(r.dialect).HandleConn(placed{far, addr})
	_ = near.SetReadDeadline(time.Now().Add(time.Hour))
	_ = near.SetWriteDeadline(time.Now().Add(time.Hour))
	return near
}

// connect logs an honest client in.
func connect(t testing.TB, c transport.Conn, id *crypto.Identity) *brep.Client {
	t.Helper()
	client, err := brep.Connect(context.Background(), c, &brep.ClientOptions{Identity: id})
	require.NoError(t, err)
	return client
}

// exchange has one client send text to another that reads it.
func exchange(t testing.TB, from, to *brep.Client, key crypto.PublicKey, text string) {
	t.Helper()
	require.NoError(t, from.Send(context.Background(), dataFrame(key, text)))
	for {
		f, err := to.Receive()
		require.NoError(t, err)
		if f.Type == frame.TypeData {
			require.Equal(t, text, string(f.Payload[32:]))
			return
		}
	}
}

// dataFrame is a DATA frame but for its sender.
func dataFrame(to crypto.PublicKey, text string) *frame.Brep {
	return &frame.Brep{Type: frame.TypeData, Payload: append(to[:], text...)}
}

// readFrame reads one frame, which shares nothing with the conn.
func readFrame(t testing.TB, c transport.Conn) *frame.Brep {
	t.Helper()
	_, msg, err := c.Read()
	require.NoError(t, err)
	f, err := frame.DecodeBrep(bytes.Clone(msg))
	require.NoError(t, err)
	return &f
}

// put writes one message. It may fail when the other end has had enough.
func put(c transport.Conn, msg []byte) error {
	for msgs := [][]byte{msg}; len(msgs) > 0; {
		n, err := c.Write(transport.Binary, msgs)
		if err != nil {
			return err
		}
		msgs = msgs[n:]
	}
	return nil
}

func putFrame(t testing.TB, c transport.Conn, f *frame.Brep) {
	t.Helper()
	require.NoError(t, put(c, f.Append(nil)))
}

// closeOf reads until the connection ends and returns the close code; 0 if there
// was none.
func closeOf(t testing.TB, c transport.Conn) uint16 {
	t.Helper()
	for {
		_, _, err := c.Read()
		var said *transport.CloseError
		switch {
		case err == nil:
		case errors.As(err, &said):
			return said.Code
		default:
			require.ErrorIs(t, err, io.EOF)
			return 0
		}
	}
}

// An answer is a v2 answer as the format has it, made without the code under
// test.
type answer struct {
	challenge []byte
	nonce     [32]byte
	relay     [32]byte
	role      byte
}

func (a *answer) signedBy(id *crypto.Identity) *frame.Brep {
	key := id.Public()
	signed := bytes.Join([][]byte{
		[]byte("sotto handshake v2 client\x00"), a.relay[:], a.challenge, a.nonce[:], key[:], {a.role},
	}, nil)
	return &frame.Brep{
		Type: frame.TypeHandshake, Sender: key, Signature: id.Sign(signed),
		Payload: bytes.Join([][]byte{a.challenge, a.nonce[:], a.relay[:], {a.role}}, nil),
	}
}

// answerV1 answers a challenge as a legacy client does.
func answerV1(challenge []byte, id *crypto.Identity) *frame.Brep {
	return &frame.Brep{
		Type: frame.TypeHandshake, Sender: id.Public(), Signature: id.Sign(challenge), Payload: challenge,
	}
}

// A web is the relay behind an http.Server, in memory, for a bubble.
type web struct {
	*relaytest.Listener
	t testing.TB
}

func (r *rig) web() *web {
	w := &web{relaytest.NewListener(), r.t}
	serve(r.t, w.Listener, r.server.Speak(r.dialect))
	return w
}

// serve serves WebSockets until the test ends, as SECURITY.md says to.
func serve(t testing.TB, l net.Listener, h transport.Handler) {
	srv := &http.Server{
		Handler:           ws.Handler(h, nil),
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
}

// client logs an honest client in over a WebSocket.
func (w *web) client(id *crypto.Identity) *brep.Client {
	w.t.Helper()
	c, err := ws.Dialer("ws://relay.test/", &ws.DialOptions{Dial: w.Dial})(context.Background())
	require.NoError(w.t, err)
	client := connect(w.t, c, id)
	w.t.Cleanup(func() { _ = client.Close() })
	return client
}

// A raw is a stream on which somebody writes what he likes.
type raw struct {
	net.Conn
	t testing.TB
}

const upgrade = "GET / HTTP/1.1\r\nHost: relay.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"

// raw connects from an IP address.
func (w *web) raw(ip string) *raw {
	w.t.Helper()
	c, err := w.DialFrom(context.Background(), netip.MustParseAddr(ip))
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = c.Close() })
	return &raw{c, w.t}
}

// upgrade asks for a WebSocket and returns when there is one.
func (r *raw) upgrade() *raw {
	r.t.Helper()
	_, err := io.WriteString(r, upgrade)
	require.NoError(r.t, err)
	var head []byte
	for b := make([]byte, 1); !bytes.HasSuffix(head, []byte("\r\n\r\n")); {
		_, err := io.ReadFull(r, b)
		require.NoError(r.t, err)
		head = append(head, b[0])
	}
	require.Contains(r.t, string(head), "101 Switching Protocols")
	return r
}

// wsFrame returns a masked WebSocket frame: head is the first byte (FIN and opcode).
func wsFrame(head byte, payload []byte) []byte {
	b := wsHeader(head, uint64(len(payload)))
	return append(b, payload...) // under a mask of zeros
}

func wsHeader(head byte, n uint64) []byte {
	const masked = 0x80
	b := []byte{head}
	switch {
	case n < 126:
		b = append(b, masked|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, masked|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, masked|127), n)
	}
	return append(b, 0, 0, 0, 0)
}

// Opcodes with FIN (RFC 6455, section 5.2).
const (
	wsText   = 0x81
	wsBinary = 0x82
	wsPing   = 0x89
)

// message reads server frames until a binary message, which it returns.
func (r *raw) message() []byte {
	r.t.Helper()
	for {
		head, payload, err := r.serverFrame()
		require.NoError(r.t, err)
		if head == wsBinary {
			return payload
		}
	}
}

func (r *raw) serverFrame() (head byte, payload []byte, err error) {
	var h [2]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return 0, nil, err
	}
	n := int(h[1])
	if n == 126 {
		var long [2]byte
		if _, err := io.ReadFull(r, long[:]); err != nil {
			return 0, nil, err
		}
		n = int(binary.BigEndian.Uint16(long[:]))
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(r, payload)
	return h[0], payload, err
}

// closed reads until the stream ends and returns the code of the close frame
// before it; 0 if there was none.
func (r *raw) closed() (code uint16) {
	for {
		head, payload, err := r.serverFrame()
		if err != nil {
			return code
		}
		if head == 0x88 && len(payload) >= 2 {
			code = binary.BigEndian.Uint16(payload)
		}
	}
}

// login answers the challenge, and returns when it is confirmed.
func (r *raw) login(id *crypto.Identity) *raw {
	r.t.Helper()
	f, err := frame.DecodeBrep(r.message())
	require.NoError(r.t, err)
	a := &answer{challenge: f.Payload, relay: f.Sender}
	_, err = r.Write(wsFrame(wsBinary, a.signedBy(id).Append(nil)))
	require.NoError(r.t, err)
	f, err = frame.DecodeBrep(r.message())
	require.NoError(r.t, err)
	require.Equal(r.t, byte(2), f.Payload[0])
	return r
}

// ended returns how long the stream went on, and the close code.
func (r *raw) ended() (after time.Duration, code uint16) {
	start := time.Now()
	code = r.closed()
	return time.Since(start), code
}
