package mesh

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/internal/race"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
)

// closed admits those relays alone.
func closed(t testing.TB, names string) func(*Config) {
	var keys Closed
	for _, name := range names {
		keys = append(keys, relayID(t, string(name)).Public())
	}
	return func(c *Config) { c.Admission = keys }
}

// Operators learn why there is no link, also when the other relay only hangs up.
func TestNotAdmitted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var log strings.Builder
		w.start("b", "", closed(t, "x"))
		a := w.start("a", "b", func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		settle()
		a.stop()
		assert.Contains(t, log.String(), "cannot link with a relay")
		assert.Contains(t, log.String(), errEnded.Error())
	})
}

// tries counts the connections that were opened to an address.
func (w *world) tries(to string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.lines {
		if l.to == to {
			n++
		}
	}
	return n
}

// Relays that each know one other find all.
func TestDiscovery(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		nodes := []*node{w.start("a", ""), w.start("b", "a"), w.start("c", "b"), w.start("d", "c"), w.start("e", "d")}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		for _, n := range nodes {
			assert.Equal(t, strings.ReplaceAll("abcde", n.name, ""), n.linkedWith())
			n.mesh.mu.Lock()
			assert.Len(t, n.mesh.all, 4, "one link with each")
			n.mesh.mu.Unlock()
		}
		for _, n := range nodes {
			assert.Len(t, n.mesh.dir.relays, 4)
		}
	})
}

// Two relays that dial one another keep one link, the same.
func TestTwoLinks(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.start("a", "b"), w.start("b", "a")
		settle()
		a.mesh.mu.Lock()
		require.Len(t, a.mesh.all, 1)
		l := a.mesh.links[b.id.Public()]
		a.mesh.mu.Unlock()
		b.mesh.mu.Lock()
		assert.Equal(t, less(a.id.Public(), b.id.Public()), l.dialled)
		assert.NotEqual(t, l.dialled, b.mesh.links[a.id.Public()].dialled)
		b.mesh.mu.Unlock()

		// Both dial at once.
		w.part("a")
		settle()
		w.part("")
		for _, x := range [][2]*node{{a, b}, {b, a}} {
			x[0].mesh.mu.Lock()
			x[0].mesh.peer(x[1].id.Public()).notBefore = time.Time{}
			require.True(t, x[0].mesh.reach(x[1].id.Public(), false, time.Now()))
			x[0].mesh.mu.Unlock()
		}
		synctest.Wait()
		a.mesh.mu.Lock()
		assert.Len(t, a.mesh.all, 2)
		a.mesh.mu.Unlock()
		settle()
		for _, x := range []*node{a, b} {
			x.mesh.mu.Lock()
			assert.Len(t, x.mesh.all, 1)
			for l := range x.mesh.all {
				dialler := a
				if less(b.id.Public(), a.id.Public()) {
					dialler = b
				}
				assert.Equal(t, dialler.id.Public(), l.dialler())
			}
			x.mesh.mu.Unlock()
		}

		// A link that is cut comes again, and after a longer absence too.
		w.cut(func(string, string) bool { return true })
		settle()
		assert.Equal(t, "b", a.linkedWith())
		b.stop()
		time.Sleep(time.Hour)
		assert.Empty(t, a.linkedWith())
		b.run("a")
		time.Sleep(backoffMost + 5*time.Second)
		synctest.Wait()
		assert.Equal(t, "b", a.linkedWith())
	})
}

// A relay is closed to those that nobody named.
func TestClosed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "b", closed(t, "c"))
		w.start("b", "", closed(t, "a"))
		w.start("c", "a", closed(t, ""))
		w.start("d", "a", closed(t, ""))
		settle()
		assert.Equal(t, "bc", a.linkedWith())
		conn, err := a.net.Dial(t.Context())
		require.NoError(t, err)
		defer conn.Close(0, "")
		f := frame.Brep{Type: frame.TypeHandshake, Sender: identity(t, 77).Public(), Payload: make([]byte, 32)}
		_, _, err = conn.Read()
		require.NoError(t, err)
		_, err = conn.Write(transport.Binary, [][]byte{f.Append(nil)})
		require.NoError(t, err)
		_, _, err = conn.Read()
		var ce *transport.CloseError
		require.ErrorAs(t, err, &ce)
		assert.EqualValues(t, transport.ClosePolicy, ce.Code)
	})
}

// A peer without a key is trusted on first use, and from then on has that key, also
// after a restart. Another key at its address is never taken in silence.
func TestFirstUse(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		keyless := func(c *Config) { c.Peers, c.Admission = []Peer{{Address: addressFor("b")}}, Closed{} }
		a, b := w.start("a", "", keyless), w.start("b", "")
		settle()
		assert.Equal(t, "b", a.linkedWith())
		a.stop()
		a.run("", keyless)
		settle()
		assert.Equal(t, "b", a.linkedWith())
		b.stop()
		b.id = identity(t, 'x') // somebody else at its address
		b.run("")
		time.Sleep(10 * time.Minute)
		assert.Empty(t, a.linkedWith())
		a.stop()
		a.run("", keyless)
		time.Sleep(10 * time.Minute)
		assert.Empty(t, a.linkedWith())
		b.stop()
		b.id = relayID(t, "b")
		b.run("")
		time.Sleep(backoffMost + 5*time.Second)
		synctest.Wait()
		assert.Equal(t, "b", a.linkedWith())
	})
}

// Our own address, under whatever name, is dialled once.
func TestSelf(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "", func(c *Config) { c.Peers = []Peer{{Address: "ws://also-a.example"}} })
		w.mu.Lock()
		w.nodes["ws://also-a.example"] = a
		w.mu.Unlock()
		time.Sleep(time.Hour)
		assert.Empty(t, a.linkedWith())
		assert.Equal(t, 1, w.tries("a"))
		w.mu.Lock()
		delete(w.nodes, "ws://also-a.example")
		w.mu.Unlock()
	})
}

// What a stranger says of addresses makes us dial few of them, and none inside.
func TestGossipedAddresses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var dials recorder
		a := w.start("a", "b", func(c *Config) { c.Dial = dials.dial })
		synctest.Wait()
		r := a.rogue(identity(t, 152))
		list := func(servers ...frame.ServerInfo) {
			n := frame.NodeInfo{Subtype: frame.NodeInfoResponseServers, Servers: servers}
			payload, err := n.Append(nil)
			require.NoError(t, err)
			r.say(frame.TypeNodeInfo, payload)
		}
		for i, address := range []string{"ws://127.0.0.1", "ws://10.0.0.1", "http://x.example", "ws://169.254.169.254", "ws://[::1]", addressFor("a")} {
			list(frame.ServerInfo{Key: identity(t, byte(100+i)).Public(), Address: address})
		}
		list(frame.ServerInfo{Key: a.id.Public(), Address: "ws://self.example"})
		list(frame.ServerInfo{Key: crypto.PublicKey{}, Address: "ws://weak.example"})
		for range 1000 { // the same
			list(frame.ServerInfo{Key: identity(t, 120).Public(), Address: "ws://victim.example"})
		}
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		so := dials.all()
		named := slices.DeleteFunc(slices.Clone(so), func(address string) bool { return address != addressFor("b") })
		assert.Greater(t, len(named), 5)
		assert.LessOrEqual(t, len(named), 14, "backoff")
		gossiped := slices.DeleteFunc(so, func(address string) bool { return address == addressFor("b") })
		for _, address := range gossiped {
			assert.Equal(t, "ws://victim.example", address)
		}
		assert.NotEmpty(t, gossiped)
		assert.LessOrEqual(t, len(gossiped), 9, "backoff")
		time.Sleep(time.Hour)
		a.mesh.mu.Lock()
		assert.Len(t, a.mesh.dir.relays, 1, "it was forgotten, the one that was named not")
		a.mesh.mu.Unlock()
	})
}

// A client's hint is followed where everybody is admitted, and not often.
func TestHints(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		b := w.start("b", "", closed(t, ""))
		w.start("c", "")
		hint := func(n *node) {
			c := n.login(identity(t, 1))
			for range 100 {
				info := frame.NodeInfo{Subtype: frame.NodeInfoAddServer, Address: addressFor("c")}
				payload, err := info.Append(nil)
				require.NoError(t, err)
				c.send(frame.TypeNodeInfo, [16]byte{}, 0, payload)
				info.Address = "ws://127.0.0.1"
				payload, _ = info.Append(nil)
				c.send(frame.TypeNodeInfo, [16]byte{}, 0, payload)
				time.Sleep(100 * time.Millisecond)
			}
			c.close()
		}
		hint(a)
		assert.Equal(t, "c", a.linkedWith())
		assert.Equal(t, 1, w.tries("c"))
		hint(b)
		assert.Empty(t, b.linkedWith())
	})
}

// Clients that asked for servers hear of the linked ones, and of new ones.
func TestServersToClients(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "bc")
		b := w.start("b", "")
		settle()
		alice := a.login(identity(t, 1))
		ask := frame.NodeInfo{Subtype: frame.NodeInfoRequestServers}
		payload, _ := ask.Append(nil)
		alice.send(frame.TypeNodeInfo, [16]byte{}, 0, payload)
		f := alice.next()
		n, err := frame.DecodeNodeInfo(f.Payload)
		require.NoError(t, err)
		assert.Equal(t, []frame.ServerInfo{{Key: a.id.Public(), Address: addressFor("a")}, {Key: b.id.Public(), Address: addressFor("b")}}, n.Servers)
		w.start("c", "")
		f = alice.next()
		n, err = frame.DecodeNodeInfo(f.Payload)
		require.NoError(t, err)
		assert.Equal(t, frame.NodeInfo{Subtype: frame.NodeInfoAddServer, Address: addressFor("c")}, n)
		alice.close()
		assert.Empty(t, a.mesh.watches)
	})
}

// A link that was made to ask something ends when it is not used. (Then the relay is
// one to keep up with, since there are few.)
func TestOnDemand(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.start("a", ""), w.start("b", "")
		synctest.Wait()
		a.mesh.mu.Lock()
		a.mesh.learn(b.id.Public(), addressFor("b"), linked, b.id.Public(), time.Now())
		a.mesh.mu.Unlock()
		a.mesh.mu.Lock()
		assert.True(t, a.mesh.ask(b.id.Public(), frame.TypePing, make([]byte, 8), time.Now()))
		a.mesh.mu.Unlock()
		time.Sleep(time.Second)
		assert.Equal(t, "b", a.linkedWith())
		link := func() *link {
			a.mesh.mu.Lock()
			defer a.mesh.mu.Unlock()
			return a.mesh.links[b.id.Public()]
		}
		first := link()
		assert.True(t, first.onDemand)
		time.Sleep(idleMost - 5*time.Second)
		assert.Same(t, first, link())
		settle()
		kept := link() // whoever of them dialled
		require.NotNil(t, kept)
		assert.NotSame(t, first, kept)
		assert.False(t, kept.onDemand)
		time.Sleep(time.Hour)
		assert.Same(t, kept, link())
	})
}

// A relay that says nothing, or answers nothing, loses its link.
func TestSilence(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		r := a.rogue(identity(t, 152))
		bob := identity(t, 2)
		r.here(bob)
		alice := a.attach(identity(t, 1))
		alice.text(bob, "one")
		alice.text(bob, "two")
		r.gets(frame.TypeData)
		assert.Empty(t, alice.hears(9*time.Second))
		assert.Equal(t, []string{"one:2", "two:2"}, alice.hears(5*time.Second))
		assert.True(t, r.isGone())
		assert.Equal(t, []string{"one", "two"}, a.login(bob).hears(time.Second))
		w.balanced()
	})
}

// Two relays that listen, piped into each other by a stranger, are not linked.
func TestPiped(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.start("a", ""), w.start("b", "")
		x, err := a.net.Dial(t.Context())
		require.NoError(t, err)
		y, err := b.net.Dial(t.Context())
		require.NoError(t, err)
		pump := func(from, to transport.Conn) {
			for {
				k, msg, err := from.Read()
				if err != nil {
					_ = to.Close(0, "")
					return
				}
				_, _ = to.Write(k, [][]byte{msg})
			}
		}
		go pump(x, y)
		go pump(y, x)
		settle()
		assert.Empty(t, a.linkedWith())
		assert.Empty(t, b.linkedWith())
		_, _ = x.Close(0, ""), y.Close(0, "")
	})
}

// A relay that speaks v1 only is no peer.
func TestLegacyRelay(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l := pipe.Listen()
		a := w.start("a", "b", func(c *Config) {
			c.Dial = func(ctx context.Context, _ string, _ dialer) (transport.Conn, error) { return l.Dial(ctx) }
		})
		for range 3 {
			c, err := l.Accept()
			require.NoError(t, err)
			f := frame.Brep{Type: frame.TypeHandshake, Payload: make([]byte, 32)}
			_, _ = c.Write(transport.Binary, [][]byte{f.Append(nil)})
			for err == nil {
				_, _, err = c.Read()
			}
			_ = c.Close(0, "")
		}
		assert.Empty(t, a.linkedWith())
		_ = l.Close()
	})
}

// Many relays on one: links with those that are told of are few.
func TestLinksMost(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var dials recorder
		a := w.start("a", "", func(c *Config) { c.Dial = dials.dial })
		synctest.Wait()
		a.mesh.mu.Lock()
		for i := range 1000 {
			id, err := crypto.GenerateIdentity()
			require.NoError(t, err)
			a.mesh.dir.add(id.Public(), fmt.Sprintf("ws://r%d.example", i), suggested, key(i), time.Now())
		}
		a.mesh.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.LessOrEqual(t, len(dials.all()), int(dialBurst+60*dialRate))
		assert.Greater(t, len(dials.all()), int(30*dialRate))
	})
}

var _ brep.Mesh = (*Mesh)(nil)

// When there are too many links, the one that others made and was not used for longest
// goes.
func TestMakeRoom(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "b")
		w.start("b", "")
		settle()
		old := a.rogue(identity(t, 151))
		time.Sleep(time.Second)
		young := a.rogue(identity(t, 152))
		for _, r := range []*rogue{old, young} {
			assert.False(t, r.isGone())
			a.mesh.mu.Lock()
			a.mesh.makeRoom()
			a.mesh.mu.Unlock()
			time.Sleep(2 * time.Second)
			assert.True(t, r.isGone())
		}
		a.mesh.mu.Lock()
		a.mesh.makeRoom()
		a.mesh.mu.Unlock()
		time.Sleep(2 * time.Second)
		assert.Equal(t, "b", a.linkedWith())
	})
}

// Relays that somebody made up own clients no longer than until they are dialled.
func TestMadeUpOwners(t *testing.T) {
	if race.Enabled {
		t.Skip("long, and no race that others have not")
	}
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.start("a", "bc"), w.start("b", "c")
		w.start("c", "")
		settle()
		for _, n := range []*node{a, b} {
			r := n.rogue(identity(t, 151))
			for range 2 {
				list := frame.NodeInfo{Subtype: frame.NodeInfoResponseServers}
				for i := range 250 {
					id, err := crypto.GenerateIdentity()
					require.NoError(t, err)
					list.Servers = append(list.Servers, frame.ServerInfo{Key: id.Public(), Address: fmt.Sprintf("ws://r%d.example", i)})
				}
				payload, err := list.Append(nil)
				require.NoError(t, err)
				r.say(frame.TypeNodeInfo, payload)
			}
			time.Sleep(time.Second)
			_ = r.conn.Close(0, "")
		}
		settle()
		a.mesh.mu.Lock()
		assert.Greater(t, len(a.mesh.dir.relays), 100)
		a.mesh.mu.Unlock()
		alice, bob := a.attach(identity(t, 1)), b.attach(identity(t, 2))
		time.Sleep(10 * time.Minute)
		alice.text(bob.id, "one")
		assert.Contains(t, bob.hears(10*time.Second), "one")
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		a.mesh.mu.Lock()
		assert.Len(t, a.mesh.dir.relays, 2, "and then they are forgotten")
		a.mesh.mu.Unlock()
	})
}

// A Mesh runs for one server, which has it.
func TestRunOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		synctest.Wait()
		assert.ErrorIs(t, a.mesh.Run(t.Context(), a.srv), errRan)
		assert.ErrorIs(t, New(&Config{Identity: a.id}).Run(t.Context(), a.srv), errOther)
	})
}
