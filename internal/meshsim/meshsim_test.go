package meshsim

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/internal/race"
	"github.com/sotto-relay/sotto/relay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	sizes  = flag.String("relays", "", "how many relays, a simulation for each; empty means 10,30, or 10 with the race detector")
	seed   = flag.Uint64("seed", 1, "of relays, clients, messages and faults")
	faults = flag.Bool("faults", true, "also break links, kill relays and move clients")
)

const (
	clientsEach = 10
	lookupsFew  = 60               // at least so many are measured
	apart       = 63 * time.Second // after which relays have forgotten what they found, and closed links
	faultsFor   = 2 * time.Minute
	faultsEvery = 10 * time.Second
	lossRate    = 0.10 // of links each time, and of dials
	churnRate   = 0.01 // of relays that are killed each time, and of clients that move
	healingMost = 15 * time.Minute
)

// A cost is frames and bytes.
type cost struct{ frames, bytes float64 }

func (c cost) String() string { return fmt.Sprintf("%.1f / %.0f", c.frames, c.bytes) }

func (c cost) less(d cost) cost   { return cost{c.frames - d.frames, c.bytes - d.bytes} }
func (c cost) plus(d cost) cost   { return cost{c.frames + d.frames, c.bytes + d.bytes} }
func (c cost) per(n float64) cost { return cost{c.frames / n, c.bytes / n} }

// A result is what was measured with so many relays: a row in each table of
// docs/mesh.md.
type result struct {
	relays, links int
	converged     time.Duration
	asked         cost // a lookup, of owners
	opened        cost // and with the links that were opened for it
	broadcast     cost // a lookup, of all relays
	upkeep        cost // of a relay, a second

	sent, taken int
	lost        int // taken, and not arrived
	doubles     int
	healed      time.Duration // after the last fault
}

// cost and faults are its rows.
func (r *result) cost() string {
	return fmt.Sprintf("| %d | %d | %d | %.0f s | %v | %v | %v | %v |",
		r.relays, r.relays*clientsEach, r.links, r.converged.Seconds(), r.asked, r.opened, r.broadcast, r.upkeep)
}

func (r *result) faults() string {
	return fmt.Sprintf("| %d | %d | %d | %d | %d | %.0f s |", r.relays, r.sent, r.taken, r.lost, r.doubles, r.healed.Seconds())
}

func TestMesh(t *testing.T) {
	if *sizes == "" {
		if *sizes = "10,30"; race.Enabled {
			*sizes = "10"
		}
	}
	for _, size := range strings.Split(*sizes, ",") {
		relays, err := strconv.Atoi(size)
		require.NoError(t, err)
		require.GreaterOrEqual(t, relays, 4)
		t.Run(size, func(t *testing.T) {
			r := &result{relays: relays}
			synctest.Test(t, func(t *testing.T) { broadcast(newWorld(t, *seed), r) })
			synctest.Test(t, func(t *testing.T) { simulate(newWorld(t, *seed), r) })
			t.Logf("seed %d\n%s\n%s", *seed, r.cost(), r.faults())
			assert.Positive(t, r.converged)
			assert.LessOrEqual(t, r.asked.frames, 6.0, "three owners are asked, and answer")
			assert.Equal(t, float64(2*(relays-1)), r.broadcast.frames, "all are asked, and answer")
			assert.Equal(t, *faults, r.taken > 0)
			assert.Zero(t, r.lost, "a message that a relay answered for did not arrive")
		})
	}
}

// simulate runs a mesh in which each relay was told of one or two others.
func simulate(w *world, r *result) {
	ctx, cancel := context.WithCancel(context.Background())
	defer func() {
		cancel()
		w.running.Wait()
		for _, n := range w.nodes {
			n.kill()
		}
	}()
	for i := range r.relays {
		n := w.add()
		for range min(i, 2) {
			n.cfg.Peers = append(n.cfg.Peers, w.nodes[w.n(i)].peer())
		}
		n.start()
	}
	r.converged, r.links = w.converge(), w.links()
	for i := range clientsEach * r.relays {
		w.join(ctx, true, w.nodes[i/clientsEach])
	}
	time.Sleep(apart + 10*time.Second) // links opened for that are closed, and made anew if they are to stay
	w.lookUp(r, w.idle())
	if *faults {
		w.t.Log(r.cost()) // of many relays the rest takes long
		w.endure(r)
	}
}

// converge waits until each relay knows all others.
func (w *world) converge() time.Duration {
	begin := time.Now()
	for _, n := range w.nodes {
		for n.state.known.Load() < int64(len(w.nodes)-1) {
			require.Less(w.t, time.Since(begin), time.Hour, "a relay knows %d", n.state.known.Load())
			time.Sleep(time.Second)
		}
	}
	return time.Since(begin)
}

// idle returns what links cost that are opened within the time of a round, and for no
// lookup: owners are reminded.
func (w *world) idle() cost {
	before := w.total(opening)
	time.Sleep(apart)
	return w.total(opening).less(before)
}

// lookUp has one client of each relay write to a stranger elsewhere, several times.
func (w *world) lookUp(r *result, idle cost) {
	begin, found, opened, queries, kept := time.Now(), w.total(finding), w.total(opening), w.total(querying), w.total(upkeep)
	lookups, round := 0, 0
	for ; lookups < lookupsFew; round++ {
		for i := range w.nodes {
			// From relay to relay: never to the same client from the same relay.
			to := (i + 1 + (round*7+i)%(len(w.nodes)-1)) % len(w.nodes)
			l := w.clients[i*clientsEach].send(w.clients[to*clientsEach+1+round%(clientsEach-1)])
			require.NotNil(w.t, l)
			lookups++
		}
		time.Sleep(apart)
	}
	w.allArrived()
	require.Equal(w.t, queries, w.total(querying), "owners were enough")
	r.asked = w.total(finding).less(found).per(float64(lookups))
	idle = idle.per(1 / float64(round)) // in all rounds
	r.opened = w.total(finding).less(found).plus(w.total(opening).less(opened).less(idle)).per(float64(lookups))
	r.upkeep = w.total(upkeep).less(kept).plus(idle).per(time.Since(begin).Seconds() * float64(len(w.nodes)))
}

// allArrived says that all letters came at once, as they do while nothing is broken.
func (w *world) allArrived() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.letters {
		require.False(w.t, l.arrived.IsZero())
		require.Less(w.t, l.arrived.Sub(l.sent), time.Second)
	}
}

// endure breaks links, kills relays and moves clients while messages are sent, and
// waits until those have arrived that a relay has answered for.
func (w *world) endure(r *result) {
	w.mu.Lock()
	w.letters, w.doubles, w.loss = make(map[relay.ID]*letter), 0, lossRate
	w.mu.Unlock()
	back := make(map[*node]time.Time)
	for begin := time.Now(); time.Since(begin) < faultsFor; time.Sleep(faultsEvery) {
		for n, when := range back {
			if !time.Now().Before(when) {
				n.start()
				delete(back, n)
			}
		}
		w.cut(func(*line) bool { return w.rng.Float64() < lossRate })
		for _, n := range w.nodes {
			if _, down := back[n]; !down && len(back) < len(w.nodes)/2 && w.chance(churnRate) {
				n.kill()
				back[n] = time.Now().Add(time.Duration(20+w.n(40)) * time.Second)
			}
		}
		for _, c := range w.clients {
			if w.chance(churnRate) {
				c.move()
			}
		}
		for range w.nodes {
			w.clients[w.n(len(w.clients))].send(w.clients[w.n(len(w.clients))])
		}
	}
	w.mu.Lock()
	w.loss = 0
	w.mu.Unlock()
	for n := range back {
		n.start()
	}
	for begin := time.Now(); ; time.Sleep(time.Second) {
		w.account(r)
		r.healed = time.Since(begin)
		switch {
		case r.lost == 0 && r.healed > 30*time.Second:
			return
		case r.healed > healingMost:
			w.explain()
			return
		}
	}
}

// explain says where the letters are that did not arrive.
func (w *world) explain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, l := range w.letters {
		if !l.taken || !l.arrived.IsZero() {
			continue
		}
		address := "no relay"
		if at, _ := l.to.where(); at != nil {
			address = at.cfg.Advertise
		}
		w.t.Logf("letter %x, sent %v ago to a client at %s", id[:8], time.Since(l.sent), address)
		to := l.to.id.Public()
		for _, n := range w.nodes {
			for e, err := range n.store.Entries(context.Background(), relay.Address{Realm: relay.RealmBrep, Name: string(to[:])}, 1) {
				require.NoError(w.t, err)
				if e.ID == id {
					w.t.Logf("is at %s", n.cfg.Advertise)
				}
			}
		}
	}
}

// account counts what became of all letters.
func (w *world) account(r *result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.sent, r.doubles, r.taken, r.lost = len(w.letters), w.doubles, 0, 0
	for _, l := range w.letters {
		if l.taken {
			r.taken++
			if l.arrived.IsZero() {
				r.lost++
			}
		}
	}
}

// broadcast measures what asking all relays costs: one relay has links with all
// others, and a client of its writes to some that have said nothing of where they are.
func broadcast(w *world, r *result) {
	ctx, cancel := context.WithCancel(context.Background())
	hub := w.add()
	defer func() {
		cancel()
		w.running.Wait()
		for _, n := range w.nodes {
			n.kill()
		}
	}()
	for range r.relays - 1 {
		n := w.add()
		n.cfg.Dial = nil
		n.start()
		hub.cfg.Peers = append(hub.cfg.Peers, n.peer())
	}
	hub.start()
	time.Sleep(20 * time.Second)
	require.Equal(w.t, r.relays-1, w.links())
	from := w.join(ctx, false, hub)
	const lookups = 3
	for i := range lookups {
		w.join(ctx, false, w.nodes[1+i*(r.relays-1)/lookups])
	}
	time.Sleep(time.Second)
	for _, c := range w.clients[1:] {
		require.NotNil(w.t, from.send(c))
	}
	time.Sleep(10 * time.Second)
	w.allArrived()
	r.broadcast = w.total(querying).per(lookups)
}
