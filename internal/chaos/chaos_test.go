package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox/disk"
	"github.com/sotto-relay/sotto/internal/race"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/relay/relaytest"
	"github.com/sotto-relay/sotto/transport/tcp"
	"github.com/sotto-relay/sotto/transport/ws"
)

var (
	messages = flag.Int("messages", 0, "how many messages TestChaos sends; 0 means 3,000, or 600 with the race detector")
	seedFlag = flag.Uint64("seed", 0, "repeats the luck of a run, as far as that goes; 0 means a new one")
)

func TestMain(m *testing.M) {
	if what, ok := os.LookupEnv(relayEnv); ok {
		if err := relayMain(what); err != nil {
			fmt.Fprintln(os.Stderr, "relay:", err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// TestChaos has people write to one another over WebSocket and TCP, while their
// networks cut, stall, slice and swallow, the relay is killed and started again
// on its directory, and some of them die and live again on their stores. All that
// was sent arrives, once, in order.
func TestChaos(t *testing.T) {
	const persons = 6
	if *messages == 0 {
		if *messages = 3_000; race.Enabled {
			*messages = 600
		}
	}
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-seed=%d to have the same luck", seed)
	v := newVictim(t)
	book := newLedger()
	names := make(map[crypto.PublicKey]string)
	people := make([]*person, persons)
	for i := range people {
		net := relaytest.NewNetwork(t, seed+uint64(i))
		dial := ws.Dialer("ws://"+v.ws, nil)
		if i%2 == 1 {
			dial = tcp.Dialer(v.tcp, brep.Dialect{}.Framing(), nil)
		}
		people[i] = newPerson(t, string(rune('a'+i)), net, net.Dialer(dial), v.key, book)
		people[i].names = names
		if i == 0 { // the store that programs have; the others' do the same, faster
			db, err := disk.Open(t.TempDir(), nil)
			require.NoError(t, err)
			t.Cleanup(func() { _ = db.Close() })
			people[i].disk = db.State()
		}
		names[people[i].id.Public()] = people[i].name
	}
	for _, p := range people {
		p.live()
	}

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var trouble, writers sync.WaitGroup
	for _, p := range people {
		trouble.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(p.name[0])<<8))
			for i, script := 0, p.net.Random(1000, 300*time.Millisecond); sleep(ctx, time.Duration(rnd.IntN(300))*time.Millisecond); i++ {
				p.net.Play(ctx, script[i%len(script):][:1])
			}
		})
		writers.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(p.name[0])))
			for range *messages / persons {
				to := people[rnd.IntN(persons)]
				for to == p {
					to = people[rnd.IntN(persons)]
				}
				p.send(to)
			}
		})
	}
	trouble.Go(func() { // the relay is killed, and some of the people
		rnd := rand.New(rand.NewPCG(seed, 0))
		for sleep(ctx, time.Duration(200+rnd.IntN(800))*time.Millisecond) {
			if rnd.IntN(2) == 0 {
				v.kill()
				v.start()
				continue
			}
			people[rnd.IntN(persons/2)].die() // the others keep running
		}
	})

	start := time.Now()
	writers.Wait()
	sent := time.Since(start)
	stop()
	trouble.Wait()
	for deadline := time.Now().Add(time.Minute); book.missing() > 0 && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond)
	}
	deaths := 0
	for _, p := range people {
		p.end()
		deaths += p.deaths
	}
	assert.Zero(t, book.missing(), "lost")
	assert.Empty(t, book.faults)
	st := v.end()
	assert.Equal(t, int64(st.Accepted+st.Found), int64(st.Delivered+st.Expired+st.Dropped)+st.Held, "%+v", st)
	t.Logf("%d messages in %v, all there after %v; the relay was killed %d times, people died %d times; %d messages came again whose handler ran when its client died",
		book.total, sent.Round(time.Millisecond), time.Since(start).Round(time.Millisecond), v.lifetime-1, deaths, book.again)
}

// sleep returns false when ctx has ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
