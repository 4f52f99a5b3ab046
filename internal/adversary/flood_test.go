package adversary

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/transport"
)

// One source opens connections as fast as it can and answers each with a bad
// signature. Most are turned away before anything is verified, and others get in
// (DO-08, DO-14).
func TestBadSignatureFlood(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		const seconds, perSecond = 3, 5000
		verified, turned, welcome := 0, 0, 0
		honest := 0
		for i := range seconds * perSecond {
			time.Sleep(time.Second / perSecond)
			c := r.from("192.0.2.66")
			_, msg, err := c.Read()
			if err != nil {
				var said *transport.CloseError
				require.ErrorAs(t, err, &said)
				require.Equal(t, uint16(transport.CloseTryLater), said.Code)
				turned++
			} else {
				challenge, err := frame.DecodeBrep(msg)
				require.NoError(t, err)
				a := &answer{challenge: challenge.Payload, relay: challenge.Sender}
				f := a.signedBy(identity(t, mallory))
				f.Signature[40] ^= 1
				putFrame(t, c, f)
				require.Equal(t, uint16(transport.ClosePolicy), closeOf(t, c))
				verified++
			}
			if i%(perSecond/20) == 0 { // 20 others a second, each of its own source
				honest++
				c := r.from(fmt.Sprintf("198.51.100.%d", honest))
				if _, _, err := c.Read(); err == nil {
					welcome++
				}
				c.Close(transport.CloseNormal, "")
			}
		}
		t.Logf("of %d connections %d were verified, %d turned away; of %d others %d got in", seconds*perSecond, verified, turned, honest, welcome)
		assert.LessOrEqual(t, verified, (seconds+1)*500)
		assert.GreaterOrEqual(t, welcome, honest*95/100)
	})
}

// One source holds as many connections as it may, and no more; a place that
// becomes free is there at once; other sources are not concerned (DO-05).
func TestConnectionsOfOneSource(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		var open []transport.Conn
		turned := 0
		for range 1200 {
			time.Sleep(4 * time.Millisecond) // under the rate; all within the 10 s of a login
			c := r.from("192.0.2.66")
			if _, _, err := c.Read(); err != nil {
				turned++
				continue
			}
			open = append(open, c)
		}
		assert.Len(t, open, 1000)
		assert.Equal(t, 200, turned)
		connect(t, r.from("198.51.100.1"), identity(t, alice)).Close()
		open[0].Close(transport.CloseNormal, "")
		synctest.Wait()
		readFrame(t, r.from("192.0.2.66"))
	})
}

// A peer that goes over the limits of its connection is thrown out, and nobody
// else notices (DO-11).
func TestFloodsOfAMember(t *testing.T) {
	big := make([]byte, 1<<20)
	for name, test := range map[string]struct {
		frame *frame.Brep
		most  int // that are taken
	}{
		"PING":     {&frame.Brep{Type: frame.TypePing, Payload: make([]byte, 8)}, 401},
		"DATA":     {dataFrame(identity(t, bob).Public(), "spam"), 401},
		"big DATA": {dataFrame(identity(t, bob).Public(), string(big)), 33},
		"unknown":  {&frame.Brep{Type: 0x7f}, 401},
		"REQUEST":  {&frame.Brep{Type: frame.TypeRequest, Payload: []byte(`{"req":1,"t":"x"}`)}, 401},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				a, b := connect(t, r.from("198.51.100.1"), identity(t, alice)), connect(t, r.from("198.51.100.2"), identity(t, bob))
				m := connect(t, r.from("192.0.2.66"), identity(t, mallory))
				before := r.server.Stats().Messages
				read := make(chan error, 1)
				go func() {
					for {
						if _, err := m.Receive(); err != nil {
							read <- err
							return
						}
					}
				}()
				for range 2000 {
					if m.Send(t.Context(), test.frame) != nil {
						break
					}
				}
				err := <-read
				assert.Contains(t, err.Error(), "rate-limited")
				assert.LessOrEqual(t, int(r.server.Stats().Messages-before), test.most+1)
				go func() { // Bob has got some of it
					for {
						if _, err := b.Receive(); err != nil {
							return
						}
					}
				}()
				exchange(t, a, a, identity(t, alice).Public(), "hello")
				require.NoError(t, b.Close())
			})
		})
	}
}

// What strangers send on a WebSocket before their login, and the code that they
// are sent away with.
func TestStrangersOnTheWire(t *testing.T) {
	repeat := func(n int, b []byte) (all []byte) {
		for range n {
			all = append(all, b...)
		}
		return all
	}
	login := (&frame.Brep{Type: frame.TypeHandshake, Payload: make([]byte, 97)}).Append(nil)
	unmasked := append([]byte{wsBinary, byte(len(login) & 0x7f)}, login...)
	for name, test := range map[string]struct {
		send []byte
		want uint16
	}{
		"an answer that is none":      {wsFrame(wsBinary, login), transport.ClosePolicy},
		"not a frame":                 {wsFrame(wsBinary, []byte("hello")), transport.CloseProtocol},
		"an empty message":            {wsFrame(wsBinary, nil), transport.CloseProtocol},
		"text":                        {wsFrame(wsText, []byte("hello")), transport.CloseUnsupported},
		"text that is not UTF-8":      {wsFrame(wsText, []byte{0xff}), transport.CloseInvalidUTF8},
		"over the limit of strangers": {wsFrame(wsBinary, make([]byte, 1025)), transport.CloseTooLarge},
		"an announcement of 4 MiB":    {wsHeader(wsBinary, 4<<20), transport.CloseTooLarge},
		"an announcement of 2^62":     {wsHeader(wsBinary, 1<<62), transport.CloseTooLarge},
		"an announcement of 2^63":     {wsHeader(wsBinary, 1<<63), transport.CloseProtocol},
		"unmasked":                    {unmasked, transport.CloseProtocol},
		"a reserved bit":              {wsFrame(wsBinary|0x40, login), transport.CloseProtocol},
		"a reserved opcode":           {wsFrame(0x83, login), transport.CloseProtocol},
		"a flood of pings":            {repeat(200, wsFrame(wsPing, []byte("ping"))), transport.ClosePolicy},
		"a flood of empty fragments":  {append(wsFrame(0x02, nil), repeat(20_000, wsFrame(0, nil))...), transport.ClosePolicy},
		"a flood of fragments":        {append(wsFrame(0x02, nil), repeat(20_000, wsFrame(0, []byte{1}))...), transport.CloseTooLarge},
		"nothing":                     {nil, transport.CloseTryLater},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				w := r.web()
				member := w.client(identity(t, alice))
				stranger := w.raw("192.0.2.66").upgrade()
				go func() { _, _ = stranger.Write(test.send) }()
				after, code := stranger.ended()
				assert.LessOrEqual(t, after, 12*time.Second)
				assert.Equal(t, test.want, code)
				exchange(t, member, member, identity(t, alice).Public(), "hello")
				synctest.Wait()
				assert.Equal(t, 1, r.server.Stats().Sessions)
			})
		})
	}
}
