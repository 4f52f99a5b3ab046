package brep

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/internal/vectors"
	"github.com/sotto-relay/sotto/transport"
)

// A breach is a message that ends the connection.
type breach struct {
	name string
	kind transport.Kind
	msg  []byte
	code uint16     // it is closed with
	err  frame.Code // that an extended session is told first
}

// layoutBreaches are those that do not depend on who sends them (FR-01 to FR-05,
// FR-10), with every length or only some.
func layoutBreaches(t testing.TB, every bool) []breach {
	good := (&frame.Brep{Type: frame.TypeData, Payload: make([]byte, 40)}).Append(nil)
	patched := func(offset int, b ...byte) []byte {
		msg := bytes.Clone(good)
		copy(msg[offset:], b)
		return msg
	}
	list := []breach{
		{"bad magic", 0, patched(0, 0x59), 1002, frame.CodeMalformed},
		{"version 0", 0, patched(1, 0), 1002, frame.CodeUnsupportedVersion},
		{"version 2", 0, patched(1, 2), 1002, frame.CodeUnsupportedVersion},
		{"version 255", 0, patched(1, 255), 1002, frame.CodeUnsupportedVersion},
		{"length one more", 0, patched(4, 0, 0, 0, 41), 1002, frame.CodeMalformed},
		{"length one less", 0, patched(4, 0, 0, 0, 39), 1002, frame.CodeMalformed},
		{"length 0xffffffff", 0, patched(4, 0xff, 0xff, 0xff, 0xff), 1002, frame.CodeMalformed},
		{"length 0x80000000", 0, patched(4, 0x80), 1002, frame.CodeMalformed},
		{"trailing byte", 0, append(bytes.Clone(good), 0), 1002, frame.CodeMalformed},
		{"text", transport.Text, good, 1003, frame.CodeMalformed},
		{"empty text", transport.Text, nil, 1003, frame.CodeMalformed},
	}
	for n := range frame.BrepHeaderSize {
		if every || n < 2 || n == frame.BrepHeaderSize-1 {
			list = append(list, breach{fmt.Sprintf("%d bytes", n), 0, good[:n], 1002, frame.CodeMalformed})
		}
	}
	type vector struct {
		Name  string
		Valid bool
		Frame string
	}
	for _, v := range vectors.Cases[vector](t, "brep_frames.json") {
		if code := frame.CodeMalformed; !v.Valid {
			if v.Name == "version 0" || v.Name == "version 2" {
				code = frame.CodeUnsupportedVersion
			}
			list = append(list, breach{"vector " + v.Name, 0, vectors.Unhex(t, v.Frame), 1002, code})
		}
	}
	return list
}

// sessionBreaches are those of an authenticated peer.
func sessionBreaches(t testing.TB, form uint8, id, other *crypto.Identity) []breach {
	key, self := other.Public(), id.Public()
	f := func(typ frame.Type, sender [32]byte, payload ...[]byte) []byte {
		return (&frame.Brep{Type: typ, Sender: sender, Payload: bytes.Join(payload, nil)}).Append(nil)
	}
	list := layoutBreaches(t, false)
	add := func(name string, msg []byte, code uint16, err frame.Code) {
		list = append(list, breach{name, transport.Binary, msg, code, err})
	}
	forwarded := map[frame.Type]int{
		frame.TypeData: recipientSize, frame.TypeSignedData: recipientSize, frame.TypeEncryptedData: recipientSize,
	}
	if form == formExtended {
		forwarded[frame.TypeSealed] = sealedMinSize
	}
	for typ, least := range forwarded {
		for n := range least {
			if typ != frame.TypeData && n > 0 && n < least-1 {
				continue
			}
			payload := append(key[:], make([]byte, least)...)[:n]
			add(fmt.Sprintf("type %d with %d bytes", typ, n), f(typ, self, payload), 1002, frame.CodeMalformed)
		}
		whole := append(key[:], make([]byte, least)...)
		add(fmt.Sprintf("type %d from another", typ), f(typ, key, whole), 1008, frame.CodeSpoofedSender)
		add(fmt.Sprintf("type %d from nobody", typ), f(typ, [32]byte{}, whole), 1008, frame.CodeSpoofedSender)
	}
	for _, payload := range [][]byte{nil, {1}, make([]byte, 32), make([]byte, 97), make([]byte, 5)} {
		add(fmt.Sprintf("HANDSHAKE again, %d bytes", len(payload)), f(frame.TypeHandshake, self, payload), 1008, frame.CodeDenied)
	}
	for name, payload := range map[string][]byte{
		"servers: more than there are": {3, 0, 1},
		"servers: fewer":               append([]byte{3, 0, 0}, make([]byte, 33)...),
		"servers: no count":            {3},
		"servers: address cut":         append([]byte{3, 0, 1}, append(make([]byte, 32), 5, 'a')...),
		"request: with something":      {2, 0},
		"add: cut":                     {4, 2, 'a'},
		"add: overlong":                {4, 1, 'a', 'b'},
		"query: short":                 append([]byte{5}, key[:31]...),
		"query: long":                  append([]byte{5}, append(key[:], 0)...),
		"response: status":             append([]byte{6, 2}, key[:]...),
	} {
		add("NODE_INFO "+name, f(frame.TypeNodeInfo, self, payload), 1002, frame.CodeMalformed)
	}
	if form == formLegacy {
		for _, typ := range []frame.Type{0, 6, 15, frame.TypeSealed, frame.TypePing, 0x20, 255} {
			add(fmt.Sprintf("unknown type %d", typ), f(typ, self, make([]byte, 100)), 1002, frame.CodeMalformed)
		}
	} else {
		for _, n := range []int{0, 7, 9} {
			add(fmt.Sprintf("PING of %d", n), f(frame.TypePing, self, make([]byte, n)), 1002, frame.CodeMalformed)
		}
	}
	return list
}

func TestBreaches(t *testing.T) {
	for form, name := range formNames {
		for _, b := range sessionBreaches(t, uint8(form), identity(t, 1), identity(t, 2)) {
			t.Run(name+"/"+b.name, func(t *testing.T) {
				bubble(t, nil, func(t *testing.T, r *rig) {
					mallory, bob := r.login(identity(t, 1), uint8(form)), r.login(identity(t, 2), formExtended)
					mallory.put(b.kind, b.msg)
					if form == int(formExtended) {
						e := mallory.error()
						require.Equal(t, b.err, e.Code)
						require.Zero(t, e.ID)
					}
					code, err := mallory.closed()
					require.Equal(t, b.code, code)
					var re *RelayError
					require.ErrorAs(t, err, &re)
					if form == int(formExtended) || b.err != frame.CodeDenied && b.kind == transport.Binary {
						// A legacy client has the reason to go by, which says little at times.
						require.Equal(t, b.code == 1008, re.Final(), "%v", err)
					}
					// Nobody else noticed.
					bob.data(bob.id, "hello")
					require.Equal(t, "hello", bob.text())
				})
			})
		}
	}
}

// TestBreachesBeforeLogin: HS-03 as well, what is no handshake message.
func TestBreachesBeforeLogin(t *testing.T) {
	list := layoutBreaches(t, true)
	key := identity(t, 1).Public()
	for typ := range 0x30 {
		if typ != int(frame.TypeHandshake) {
			f := frame.Brep{Type: frame.Type(typ), Sender: key, Payload: append(key[:], make([]byte, 100)...)}
			list = append(list, breach{fmt.Sprintf("type %d", typ), 0, f.Append(nil), 1008, 0})
		}
	}
	long := frame.Brep{Type: frame.TypeHandshake, Payload: make([]byte, 1<<10)}
	list = append(list, breach{"more than a handshake needs", 0, long.Append(nil), 1009, 0})
	for _, b := range list {
		t.Run(b.name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				conn := r.dial()
				_, _, err := conn.Read()
				require.NoError(t, err)
				_, err = conn.Write(b.kind, [][]byte{b.msg})
				require.NoError(t, err)
				_, _, err = conn.Read()
				var ce *transport.CloseError
				require.ErrorAs(t, err, &ce, "a legacy peer sees nothing but the close")
				require.Equal(t, b.code, ce.Code)
			})
		})
	}
}

// TestIgnored: what an extended session may send in vain.
func TestIgnored(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		extended, legacy := r.login(identity(t, 1), formExtended), r.login(identity(t, 2), formLegacy)
		key := identity(t, 3).Public()
		for _, typ := range []frame.Type{0, 6, 15, frame.TypeResponse, frame.TypeMessage, frame.TypeRoomMessage, frame.TypeReceipt,
			frame.TypeError, frame.TypeGoAway, frame.TypePong, 0x1d, 0x20, 0x26, 255} {
			extended.send(extended.frame(typ, make([]byte, 10)))
		}
		extended.send(extended.frame(frame.TypeAck, make([]byte, 2*frame.AckSize))) // of what it was not sent
		for _, p := range []*peer{extended, legacy} {
			for _, payload := range [][]byte{
				nil,    // empty
				{0},    // REQUEST_CLIENTS: who is here is nobody's business
				{0, 1}, // whatever follows
				{1}, {1, 0, 1}, {7}, {255, 1, 2, 3},
				{3, 0, 0},                       // servers that nobody asked for
				{4, 1, 'a'},                     // a hint, without a mesh
				append([]byte{6, 0}, key[:]...), // an answer to nothing
			} {
				p.send(p.frame(frame.TypeNodeInfo, payload))
			}
			p.data(p.id, "still here")
			require.Equal(t, "still here", p.text(), "and nothing before it")
		}
		require.EqualValues(t, 13, r.server.Stats().Ignored["brep: unknown type"])
		require.EqualValues(t, 20, r.server.Stats().Ignored["brep: NODE_INFO"])
	})
}

func TestSpoofIsCounted(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		mallory, bob := r.login(identity(t, 1), formLegacy), identity(t, 2)
		key := bob.Public()
		mallory.put(0, (&frame.Brep{Type: frame.TypeData, Sender: key, Payload: key[:]}).Append(nil))
		mallory.closed()
		require.EqualValues(t, 1, r.server.Stats().Ignored["brep: spoofed sender"])
		require.Zero(t, r.server.Stats().Accepted)
	})
}

// TestEmptyBody: FR-09; the payload is the recipient's key and no more.
func TestEmptyBody(t *testing.T) {
	for form, name := range formNames {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				p := r.login(identity(t, 1), uint8(form))
				p.data(p.id, "")
				require.Empty(t, p.text())
			})
		})
	}
}

func TestPing(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		p := r.login(identity(t, 1), formExtended)
		p.send(p.frame(frame.TypePing, []byte("12345678")))
		_, msg, err := p.raw.Read() // the Client would keep it to itself
		require.NoError(t, err)
		want := frame.Brep{Type: frame.TypePong, Sender: r.Identity.Public(), Payload: []byte("12345678")}
		require.Equal(t, want.Append(nil), msg)
	})
}

func TestNodeInfo(t *testing.T) {
	here, away, relayKey := identity(t, 1), identity(t, 2), identity(t, relaySeed).Public()
	for _, c := range []struct {
		name     string
		set      func(*Dialect)
		question frame.NodeInfo
		answer   frame.NodeInfo
	}{
		{"servers, none told", nil,
			frame.NodeInfo{Subtype: frame.NodeInfoRequestServers},
			frame.NodeInfo{Subtype: frame.NodeInfoResponseServers, Servers: []frame.ServerInfo{}}},
		{"servers", func(d *Dialect) { d.Advertise = "wss://relay.example/" },
			frame.NodeInfo{Subtype: frame.NodeInfoRequestServers},
			frame.NodeInfo{Subtype: frame.NodeInfoResponseServers, Servers: []frame.ServerInfo{{Key: relayKey, Address: "wss://relay.example/"}}}},
		{"client here, not told", nil,
			frame.NodeInfo{Subtype: frame.NodeInfoQueryClient, Client: here.Public()},
			frame.NodeInfo{Subtype: frame.NodeInfoQueryResponse, Client: here.Public()}},
		{"client here", func(d *Dialect) { d.PresenceQueries = true },
			frame.NodeInfo{Subtype: frame.NodeInfoQueryClient, Client: here.Public()},
			frame.NodeInfo{Subtype: frame.NodeInfoQueryResponse, Client: here.Public(), Found: true, Relay: relayKey}},
		{"client away", func(d *Dialect) { d.PresenceQueries = true },
			frame.NodeInfo{Subtype: frame.NodeInfoQueryClient, Client: away.Public()},
			frame.NodeInfo{Subtype: frame.NodeInfoQueryResponse, Client: away.Public()}},
	} {
		for form, name := range formNames {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				set := func(r *rig) {
					if c.set != nil {
						c.set(&r.Dialect)
					}
				}
				bubble(t, set, func(t *testing.T, r *rig) {
					p := r.login(here, uint8(form))
					question, err := c.question.Append(nil)
					require.NoError(t, err)
					p.send(p.frame(frame.TypeNodeInfo, question))
					f := p.next()
					require.Equal(t, frame.TypeNodeInfo, f.Type)
					require.Equal(t, [32]byte(relayKey), f.Sender)
					answer, err := frame.DecodeNodeInfo(f.Payload)
					require.NoError(t, err)
					require.Equal(t, c.answer, answer)
				})
			})
		}
	}
}

// TestMisconfigured: a relay that cannot work serves nobody.
func TestMisconfigured(t *testing.T) {
	for name, set := range map[string]func(*Dialect){
		"no identity":          func(d *Dialect) { d.Identity = nil },
		"advertises 256 bytes": func(d *Dialect) { d.Advertise = string(make([]byte, 256)) },
		"advertises no UTF-8":  func(d *Dialect) { d.Advertise = "\xff" },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) { set(&r.Dialect) }, func(t *testing.T, r *rig) {
				require.EqualValues(t, transport.CloseInternal, closeOf(t, r.dial()))
			})
		})
	}
}

// TestOverRate: past the rate limit the connection ends, and that of nobody else.
func TestOverRate(t *testing.T) {
	for form, name := range formNames {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				p := r.login(identity(t, 1), uint8(form))
				info := p.frame(frame.TypeNodeInfo, []byte{7}).Append(nil)
				time.Sleep(10 * time.Second) // the login is made up for
				for range 400 {
					p.put(0, info)
				}
				synctest.Wait()
				time.Sleep(time.Second)
				for range 200 {
					p.put(0, info)
				}
				synctest.Wait()
				require.EqualValues(t, 600, r.server.Stats().Ignored["brep: NODE_INFO"])
				p.put(0, info)
				if form == int(formExtended) {
					require.Equal(t, frame.CodeRateLimited, p.error().Code)
				}
				code, err := p.closed()
				require.EqualValues(t, 1008, code)
				var re *RelayError
				require.True(t, errors.As(err, &re))
				require.Equal(t, frame.CodeRateLimited, re.Code)
				require.False(t, re.Final(), "it may come again")
			})
		})
	}
}

func TestTooLarge(t *testing.T) {
	for form, name := range formNames {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				p := r.login(identity(t, 1), uint8(form))
				key := p.id.Public()
				largest := p.frame(frame.TypeData, key[:], make([]byte, 4<<20-recipientSize))
				p.send(largest)
				require.Len(t, p.next().Payload, 4<<20)
				largest.Payload = append(largest.Payload, 0)
				p.send(largest)
				if form == int(formExtended) {
					require.Equal(t, frame.CodeTooLarge, p.error().Code)
				}
				code, _ := p.closed()
				require.EqualValues(t, 1009, code)
			})
		})
	}
}
