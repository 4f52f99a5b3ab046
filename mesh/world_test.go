package mesh

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
)

// A world is relays and clients in memory, in a bubble of fake time.
type world struct {
	t testing.TB

	mu    sync.Mutex
	nodes map[string]*node // by address
	lines []*line
	apart func(from, to string) bool // no line between these relays
}

// A line is a connection between relays.
type line struct {
	transport.Conn
	from, to string
}

// A node is one relay.
type node struct {
	w      *world
	name   string
	id     *crypto.Identity
	net    *pipe.Network
	store  inbox.Store
	state  inbox.State
	srv    *relay.Server
	mesh   *Mesh
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// newWorld is for a bubble. What is started is stopped with the test.
func newWorld(t testing.TB) *world {
	w := &world{t: t, nodes: make(map[string]*node)}
	t.Cleanup(func() {
		for _, n := range w.all() {
			n.stop()
		}
	})
	return w
}

func (w *world) all() (all []*node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		all = append(all, n)
	}
	return all
}

func identity(t testing.TB, n byte) *crypto.Identity {
	t.Helper()
	id, err := crypto.IdentityFromSeed(bytes.Repeat([]byte{n}, 32))
	require.NoError(t, err)
	return id
}

func addressFor(name string) string { return "ws://" + name + ".example" }

// relayID is the identity of the relay with a name, one letter.
func relayID(t testing.TB, name string) *crypto.Identity { return identity(t, name[0]) }

// start starts a relay that knows the others with these names.
func (w *world) start(name string, peers string, set ...func(*Config)) *node {
	w.t.Helper()
	n := &node{w: w, name: name, id: relayID(w.t, name), store: inbox.NewMemory(nil), state: inbox.NewMemoryState(nil)}
	n.run(peers, set...)
	return n
}

func (n *node) run(peers string, set ...func(*Config)) {
	w := n.w
	cfg := &Config{
		Identity: n.id, Advertise: addressFor(n.name), Admission: Open{}, State: n.state,
		Dial: n.dial, Durable: true, Logger: slog.New(slog.DiscardHandler),
	}
	for _, p := range peers {
		key := relayID(w.t, string(p)).Public()
		cfg.Peers = append(cfg.Peers, Peer{addressFor(string(p)), &key})
	}
	for _, f := range set {
		f(cfg)
	}
	n.net = pipe.Listen()
	n.mesh = New(cfg)
	n.srv = &relay.Server{Inbox: n.store, Mesh: n.mesh, Logger: cfg.Logger}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.wg.Go(func() { _ = n.mesh.Run(ctx, n.srv) })
	n.wg.Go(func() {
		_ = n.srv.Serve(n.net, brep.Dialect{Identity: n.id, Mesh: n.mesh, Durable: true, Advertise: cfg.Advertise})
	})
	w.mu.Lock()
	w.nodes[addressFor(n.name)] = n
	w.mu.Unlock()
	synctest.Wait() // until its mesh is up
}

// stop shuts a relay down. Its stores stay.
func (n *node) stop() {
	n.w.mu.Lock()
	delete(n.w.nodes, addressFor(n.name))
	n.w.mu.Unlock()
	_ = n.srv.Close()
	n.cancel()
	n.wg.Wait()
}

// kill is stop, and cuts all lines before, so that nothing is said.
func (n *node) kill() {
	n.w.cut(func(from, to string) bool { return from == n.name || to == n.name })
	n.stop()
}

func (n *node) dial(ctx context.Context, address string, _ *net.Dialer) (transport.Conn, error) {
	w := n.w
	w.mu.Lock()
	to := w.nodes[address]
	if to == nil || w.apart != nil && (w.apart(n.name, to.name) || w.apart(to.name, n.name)) {
		w.mu.Unlock()
		return nil, net.ErrClosed
	}
	w.mu.Unlock()
	c, err := to.net.Dial(ctx)
	if err != nil {
		return nil, err
	}
	l := &line{c, n.name, to.name}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, l)
	return l, nil
}

// cut ends lines.
func (w *world) cut(which func(from, to string) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.lines {
		if which(l.from, l.to) {
			_ = l.Close(0, "")
		}
	}
}

// part keeps the relays of one group from the others, until it is nil.
func (w *world) part(group string) {
	in := func(name string) bool { return bytes.Contains([]byte(group), []byte(name)) }
	w.mu.Lock()
	w.apart = nil
	if group != "" {
		w.apart = func(from, to string) bool { return in(from) != in(to) }
	}
	apart := w.apart
	w.mu.Unlock()
	if apart != nil {
		w.cut(apart)
	}
}

// A client is connected to a relay.
type client struct {
	t    testing.TB
	id   *crypto.Identity
	at   *node
	conn *brep.Client
	in   chan frame.Brep // what came, but for what the client answers by itself
	gone chan struct{}
	mute atomic.Bool // acknowledges nothing
}

// login connects a client, without an attachment.
func (n *node) login(id *crypto.Identity) *client {
	n.w.t.Helper()
	return n.connect(id, false)
}

// legacy connects a client that speaks v1.
func (n *node) legacy(id *crypto.Identity) *client {
	n.w.t.Helper()
	return n.connect(id, true)
}

// A keyless connection hides who the relay is, as a legacy relay does.
type keyless struct {
	transport.Conn
	read bool
}

func (c *keyless) Read() (transport.Kind, []byte, error) {
	k, msg, err := c.Conn.Read()
	if err == nil && !c.read {
		msg = bytes.Clone(msg)
		clear(msg[24:56])
	}
	c.read = true
	return k, msg, err
}

func (n *node) connect(id *crypto.Identity, legacy bool) *client {
	n.w.t.Helper()
	conn, err := n.net.Dial(context.Background())
	require.NoError(n.w.t, err)
	if legacy {
		conn = &keyless{Conn: conn}
	}
	b, err := brep.Connect(context.Background(), conn, &brep.ClientOptions{Identity: id, ManualAck: true, AllowLegacy: legacy})
	require.NoError(n.w.t, err)
	c := &client{t: n.w.t, id: id, at: n, conn: b, in: make(chan frame.Brep, 10_000), gone: make(chan struct{})}
	go func() {
		defer close(c.gone)
		for {
			f, err := b.Receive()
			if err != nil {
				return
			}
			f.Payload = bytes.Clone(f.Payload)
			if f.Type == frame.TypeData && !c.mute.Load() {
				b.Ack(&f)
			}
			c.in <- f
		}
	}()
	n.w.t.Cleanup(func() { _ = b.Close(); <-c.gone })
	return c
}

// attach has the client say where it is.
func (n *node) attach(id *crypto.Identity) *client {
	n.w.t.Helper()
	c := n.login(id)
	c.say(crypto.Attach(id, n.id.Public(), time.Now().Add(time.Hour)))
	require.Contains(c.t, c.response(), `"ok":true`)
	return c
}

// response waits for a RESPONSE, and leaves other frames for later.
func (c *client) response() string {
	c.t.Helper()
	var others []frame.Brep
	defer func() {
		for _, f := range others {
			c.in <- f
		}
	}()
	for {
		f := c.next()
		if f.Type == frame.TypeResponse {
			return string(f.Payload)
		}
		others = append(others, f)
	}
}

func (c *client) say(statement [crypto.AttachmentSize]byte) {
	c.t.Helper()
	c.send(frame.TypeRequest, [16]byte{}, 0, fmt.Appendf(nil, `{"t":"attach","req":1,"stmt":%q}`, base64.StdEncoding.EncodeToString(statement[:])))
}

func (c *client) send(t frame.Type, id [16]byte, flags uint8, payload []byte) {
	c.t.Helper()
	f := &frame.Brep{Type: t, ID: id, Flags: flags, Sender: c.id.Public(), Payload: payload}
	require.NoError(c.t, c.conn.Send(context.Background(), f))
}

// text sends DATA with a text, which is its id too, and wants a receipt.
func (c *client) text(to *crypto.Identity, text string) {
	c.t.Helper()
	key := to.Public()
	c.send(frame.TypeData, textID(text), frame.FlagReceipt, append(key[:], text...))
}

func textID(text string) (id [16]byte) {
	copy(id[:], text)
	return id
}

// close ends the connection.
func (c *client) close() {
	_ = c.conn.Close()
	<-c.gone
	synctest.Wait()
}

// next waits for a frame.
func (c *client) next() frame.Brep {
	c.t.Helper()
	select {
	case f := <-c.in:
		return f
	case <-time.After(time.Hour):
		require.FailNow(c.t, "nothing comes")
	}
	return frame.Brep{}
}

// hears returns what has come within a time: texts of DATA, and receipts as "ID:STATUS".
func (c *client) hears(within time.Duration) (all []string) {
	time.Sleep(within)
	synctest.Wait()
	for {
		select {
		case f := <-c.in:
			switch f.Type {
			case frame.TypeData:
				all = append(all, string(f.Payload[32:]))
			case frame.TypeReceipt:
				r, err := frame.DecodeReceipt(f.Payload)
				require.NoError(c.t, err)
				what := fmt.Sprintf("%s:%d", bytes.TrimRight(r.ID[:], "\x00"), r.Status)
				if r.Code != 0 {
					what += " " + r.Code.String()
				}
				all = append(all, what)
			case frame.TypeGoAway:
			default:
				all = append(all, fmt.Sprintf("%#x %q", uint8(f.Type), f.Payload))
			}
		default:
			return all
		}
	}
}

// settle lets the relays find one another.
func settle() {
	time.Sleep(20 * time.Second)
	synctest.Wait()
}

// linkedWith returns the names of the relays that n has links with.
func (n *node) linkedWith() (names string) {
	n.mesh.mu.Lock()
	defer n.mesh.mu.Unlock()
	for c := byte('a'); c <= 'z'; c++ {
		if n.mesh.links[relayID(n.w.t, string(c)).Public()] != nil {
			names += string(c)
		}
	}
	return names
}

// balanced checks the counters of all relays.
func (w *world) balanced() {
	w.t.Helper()
	synctest.Wait()
	for _, n := range w.all() {
		st := n.srv.Stats()
		require.Equal(w.t, int64(st.Accepted+st.Found), int64(st.Delivered+st.Expired+st.Dropped)+st.Held, "%s: %+v", n.name, st)
	}
}

// bubble runs f in a world.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t)) })
}

type dialer = *net.Dialer

// A recorder notes what is dialled, and reaches nobody.
type recorder struct {
	mu      sync.Mutex
	dialled []string
}

func (r *recorder) dial(_ context.Context, address string, _ dialer) (transport.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dialled = append(r.dialled, address)
	return nil, net.ErrClosed
}

func (r *recorder) all() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.dialled)
}
