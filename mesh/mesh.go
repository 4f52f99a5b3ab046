package mesh

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// A Config says what a Mesh is made of. It is not changed afterwards.
type Config struct {
	Identity *crypto.Identity // the relay's; required

	// Dial opens a connection to a relay at a ws or wss URL, by d and nothing else:
	// d refuses the addresses that strangers must not have us dial. It follows no
	// redirects. Nil: this relay is dialled, and dials nobody.
	Dial func(ctx context.Context, address string, d *net.Dialer) (transport.Conn, error)

	// Peers are kept up with, for ever.
	Peers []Peer

	// Admission says which other relays to link with. Nil: Closed, with nobody but
	// Peers.
	Admission Admission

	// Advertise is the address at which other relays and clients reach this one. Empty:
	// it is not told.
	Advertise string

	// PrivateAddresses allows addresses of private networks and of this machine.
	PrivateAddresses bool

	// SealedOnly refuses what a relay could read, DATA and SIGNED_DATA, from other
	// relays, as brep.Dialect.SealedOnly does from clients.
	SealedOnly bool

	// Durable says that the server's inbox survives a crash.
	Durable bool

	// State keeps the directory, and which clients attach. Nil: nothing is kept. For whom
	// there is mail the server's inbox says, if it is an inbox.Lister.
	State inbox.State

	// Logger gets what operators should know. Nil: slog.Default().
	Logger *slog.Logger
}

// A Mesh is one relay's part of the mesh. Its methods may be called concurrently.
type Mesh struct {
	cfg   Config
	self  crypto.PublicKey
	log   *slog.Logger
	guard *net.Dialer
	seed  maphash.Seed
	wake  chan struct{} // with room for one: there are effects
	wg    sync.WaitGroup

	doing sync.Mutex // held by whoever does effects

	mu      sync.Mutex
	phase   phase
	srv     *relay.Server
	ctx     context.Context // of Run
	cancel  context.CancelFunc
	effects []func()
	ticks   uint64

	dir     *directory
	peers   map[crypto.PublicKey]*peer
	links   map[crypto.PublicKey]*link // that take new frames
	all     map[*link]struct{}
	bad     *lasting[relayAt, struct{}]          // where another relay was than announced
	dead    *lasting[crypto.PublicKey, struct{}] // relays that were forgotten, since they were never there
	own     *lasting[string, struct{}]           // addresses of our own
	hints   []string                             // addresses that clients named
	hinted  *lasting[crypto.PublicKey, int]
	tried   *lasting[string, struct{}] // addresses that clients named, and that were taken up
	dials   float64                    // discovered relays that may be dialled now
	demand  float64                    // and those that there is something for
	asks    float64                    // searches that may begin now, and holdings that owners may be told of
	watches map[*watch]struct{}
	voters  voters
	told    uint64             // version of voters that all are told of what they own
	untold  bool               // an owner that could not be reached is to be told
	retold  []crypto.PublicKey // clients of which owners are still to be told

	searches map[crypto.PublicKey]*search
	places   *lasting[crypto.PublicKey, place]
	attested *attested
	waiting  int // bytes, in all searches
	flying   map[crypto.PublicKey]*flight
	quiet    *lasting[crypto.PublicKey, quiet]
	backing  map[crypto.PublicKey]int // messages on their way back to the server, by recipient
	in       *lasting[message, *arrival]
	out      *lasting[message, *departure]

	here     map[crypto.PublicKey]*presence
	fetching map[crypto.PublicKey]*presence // of here, those with fetches
	owned    map[crypto.PublicKey]*owned
	ownings  int                      // places and holders in owned
	shares   map[crypto.PublicKey]int // of those, by relay
	mail     map[crypto.PublicKey]*holding
	count    Stats // what has been done
}

type phase uint8

const (
	fresh phase = iota
	running
	stopped
)

// How much a Mesh remembers.
const (
	placesMost  = 100_000
	crossedMost = 1 << 17
	crossedFor  = 10 * time.Minute
	tick        = time.Second
)

// New returns a Mesh, which does nothing before Run.
func New(c *Config) *Mesh {
	m := &Mesh{
		cfg: *c, self: c.Identity.Public(), log: c.Logger,
		guard: guarded(c.PrivateAddresses), seed: maphash.MakeSeed(), wake: make(chan struct{}, 1),
		peers:    make(map[crypto.PublicKey]*peer),
		links:    make(map[crypto.PublicKey]*link),
		all:      make(map[*link]struct{}),
		bad:      newLasting[relayAt, struct{}](directoryMost),
		own:      newLasting[string, struct{}](64),
		hinted:   newLasting[crypto.PublicKey, int](10_000),
		tried:    newLasting[string, struct{}](10_000),
		dead:     newLasting[crypto.PublicKey, struct{}](directoryMost),
		watches:  make(map[*watch]struct{}),
		searches: make(map[crypto.PublicKey]*search),
		places:   newLasting[crypto.PublicKey, place](placesMost),
		attested: newAttested(attestedMost),
		flying:   make(map[crypto.PublicKey]*flight),
		quiet:    newLasting[crypto.PublicKey, quiet](placesMost),
		backing:  make(map[crypto.PublicKey]int),
		in:       newLasting[message, *arrival](crossedMost),
		out:      newLasting[message, *departure](crossedMost),
		here:     make(map[crypto.PublicKey]*presence),
		owned:    make(map[crypto.PublicKey]*owned),
		shares:   make(map[crypto.PublicKey]int),
		mail:     make(map[crypto.PublicKey]*holding),
		fetching: make(map[crypto.PublicKey]*presence),
	}
	m.dir = newDirectory(m.self)
	if m.log == nil {
		m.log = slog.Default()
	}
	if m.cfg.Admission == nil {
		m.cfg.Admission = Closed{}
	}
	return m
}

var (
	errRan   = errors.New("mesh: Run is for once")
	errOther = errors.New("mesh: the server has another Mesh, or none")
)

// Run links with other relays, on behalf of a server that has the Mesh as its Mesh,
// until ctx ends or the server closes. Before and after that nobody is linked with,
// and messages are stored as without a mesh. When it returns, all that it started has
// ended. The error is of the state store, or for a wrong call.
func (m *Mesh) Run(ctx context.Context, srv *relay.Server) error {
	if srv.Mesh != m {
		return errOther
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dir, attested, err := m.load(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	if m.phase != fresh {
		m.mu.Unlock()
		return errRan
	}
	m.phase, m.srv, m.ctx, m.cancel = running, srv, ctx, cancel
	m.dir, m.attested, m.demand, m.asks = dir, attested, demandBurst, asksBurst
	m.voters.changed()
	for _, p := range m.cfg.Peers {
		if p.Key != nil {
			m.dir.add(*p.Key, p.Address, seeded, m.self, time.Now())
		}
		if m.cfg.Dial != nil {
			m.wg.Go(func() { m.keepUp(ctx, p) })
		}
	}
	m.mu.Unlock()
	m.check(m.findMail(ctx)) // what is stored from here on, Kept says
	m.wg.Go(func() {
		for {
			select {
			case <-m.wake:
				m.do()
			case <-ctx.Done():
				return
			}
		}
	})
	m.wg.Go(func() { m.keepSaved(ctx) })
	clock := time.NewTicker(tick)
	defer clock.Stop()
	for on := true; on; {
		select {
		case <-clock.C:
			m.look(time.Now())
		case <-ctx.Done():
			on = false
		}
	}
	m.Stop()
	m.wg.Wait()
	m.do()
	if err := m.save(context.WithoutCancel(ctx)); err != nil {
		m.log.Warn("mesh: state store", "err", err)
	}
	return nil
}

// Stop gives all messages back and ends what Run does. It implements
// relay.Forwarder.
func (m *Mesh) Stop() {
	m.mu.Lock()
	on := m.phase == running
	m.phase = stopped
	if on {
		m.stopAll()
		m.cancel()
	}
	m.mu.Unlock()
	m.do()
}

func (m *Mesh) stopAll() {
	for l := range m.all {
		m.abandon(l)
		m.end(l, &relay.Refusal{Code: relay.CodeGoingAway, Reason: "the relay is going away"})
	}
	for _, s := range m.searches {
		m.giveUp(s)
	}
}

// later adds an effect. The caller holds mu.
func (m *Mesh) later(effect func()) {
	m.effects = append(m.effects, effect)
	signal(m.wake)
}

// do does all effects.
func (m *Mesh) do() {
	m.doing.Lock()
	defer m.doing.Unlock()
	for {
		m.mu.Lock()
		effects := m.effects
		m.effects = nil
		m.mu.Unlock()
		if len(effects) == 0 {
			return
		}
		for _, effect := range effects {
			effect()
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// load reads the state store.
func (m *Mesh) load(ctx context.Context) (*directory, *attested, error) {
	dir, attested := newDirectory(m.self), newAttested(attestedMost)
	if m.cfg.State == nil {
		return dir, attested, nil
	}
	err := errors.Join(dir.load(ctx, m.cfg.State), attested.load(ctx, m.cfg.State))
	return dir, attested, err
}

// keepSaved saves until ctx ends: beside what is done in time, since a store may be slow.
func (m *Mesh) keepSaved(ctx context.Context) {
	clock := time.NewTicker(tick)
	defer clock.Stop()
	failed := false
	for {
		select {
		case <-clock.C:
			err := m.save(ctx)
			if err != nil && !failed && ctx.Err() == nil {
				m.log.Warn("mesh: state store; trying again every second", "err", err)
			}
			failed = err != nil
		case <-ctx.Done():
			return
		}
	}
}

// save writes what has changed to the state store. What cannot be written has changed
// still.
func (m *Mesh) save(ctx context.Context) error {
	m.mu.Lock()
	relays, clients := m.dir.changed(), m.attested.some()
	m.mu.Unlock()
	if m.cfg.State == nil {
		return nil
	}
	err := errors.Join(m.write(ctx, relaysBucket, relays), m.write(ctx, attestedBucket, clients))
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range relays {
		m.dir.dirty[crypto.PublicKey([]byte(key))] = struct{}{}
	}
	for key := range clients {
		m.attested.changed(crypto.PublicKey([]byte(key)))
	}
	return err
}

// write writes values until one cannot be, and takes those written out of them. Nil ones
// are deleted.
func (m *Mesh) write(ctx context.Context, bucket string, values map[string][]byte) (err error) {
	for key, value := range values {
		if value == nil {
			err = m.cfg.State.Delete(ctx, bucket, key)
		} else {
			err = m.cfg.State.Put(ctx, bucket, key, value)
		}
		if err != nil {
			return err
		}
		delete(values, key)
	}
	return nil
}

// look does what time has come for.
func (m *Mesh) look(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ticks++
	m.demand = min(demandBurst, m.demand+demandRate)
	m.asks = min(asksBurst, m.asks+asksRate)
	m.lookAtLinks(now)
	m.lookAtSearches(now)
	if m.untold && m.ticks%30 == 0 {
		m.untold = false
		m.voters.changed()
	}
	m.remind(now)
	m.retell(now)
	m.forgetMail()
	if m.ticks%5 == 0 {
		m.discover(now)
		m.fetchAgain(now)
	}
	if m.ticks%30 == 0 {
		m.requestOfSome()
		m.forgetPlaces(now)
		m.forgetPeers(now)
		m.places.sweep(now)
		m.quiet.sweep(now)
		m.in.sweep(now)
		m.out.sweep(now)
	}
}

// addressOf returns the address of a client in the waist.
func addressOf(client crypto.PublicKey) relay.Address {
	return relay.Address{Realm: relay.RealmBrep, Name: string(client[:])}
}

// clientOf returns the key of an address, if it is one of a client's.
func clientOf(a relay.Address) (client crypto.PublicKey, ok bool) {
	if a.Realm != relay.RealmBrep || len(a.Name) != len(client) {
		return client, false
	}
	return crypto.PublicKey([]byte(a.Name)), true
}
