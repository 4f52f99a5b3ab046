package disk

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/internal/race"
)

var (
	crashes   = flag.Int("crashes", 0, "times that TestKill kills a process; 0 means 100, or 10 of the slow ones with -race")
	crashSeed = flag.Uint64("crash-seed", 0, "repeats a run of TestKill, as far as that goes; 0 means a new one")
)

const childEnv = "SOTTO_DISK_TEST_CHILD" // directory and seed

// TestKill kills a process that works on a store, over and over, and checks what
// the next one finds: four times of five after a random number of things that it
// has told, else at a random moment from its start on, mostly while it opens the
// store.
func TestKill(t *testing.T) {
	if *crashes == 0 {
		if *crashes = 100; race.Enabled {
			*crashes = 10
		}
	}
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-crash-seed=%d to repeat this run", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	h := newHistory()
	start := time.Now()
	killedEarly := 0
	for i := range *crashes {
		lines, after := rnd.IntN(500), 5*time.Second
		if rnd.IntN(5) == 0 {
			after = time.Duration(rnd.IntN(60)) * time.Millisecond
		}
		opened, faults := kill(t, dir, seed+uint64(i), lines, after, h)
		if !opened {
			killedEarly++
		}
		require.Empty(t, faults, "after %d crashes", i)
	}
	db, err := Open(dir, nil)
	require.NoError(t, err)
	defer db.Close()
	boxes, values, err := contents(db, people)
	require.NoError(t, err)
	require.Empty(t, h.check(boxes, values))
	check, err := db.Check(ctx)
	require.NoError(t, err)
	require.Empty(t, check.Damaged)
	stored := 0
	for _, f := range h.messages {
		if f.stored {
			stored++
		}
	}
	t.Logf("%d processes killed in %v, %d of them before their store was open; %d messages begun",
		*crashes, time.Since(start).Round(time.Millisecond), killedEarly, len(h.messages))
	require.LessOrEqual(t, killedEarly, *crashes/2, "too few crashes hit a store that works")
}

// kill runs a child until it has told so much of its work, or for so long, and
// has h check what it found when it opened the store.
func kill(t *testing.T, dir string, seed uint64, lines int, after time.Duration, h *history) (opened bool, faults []string) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", childEnv, seed, dir))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	die := func() { _ = cmd.Process.Kill() }
	defer time.AfterFunc(after, die).Stop()
	opened, faults = listen(out, h, lines, die)
	_ = cmd.Wait()
	require.Empty(t, stderr.String())
	return opened, faults
}

// listen reads what a child tells, and kills it when that is enough. What it
// said before it died counts, but a line that was cut off.
func listen(r io.Reader, h *history, enough int, die func()) (opened bool, faults []string) {
	boxes, values := make(map[string][]string), make(map[string]int)
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return opened, faults
		}
		if opened {
			if enough--; enough <= 0 {
				die()
			}
		}
		verb, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		key, number, _ := strings.Cut(name, " ")
		n, _ := strconv.Atoi(number)
		switch verb {
		case "there":
			to, _, _ := split(name)
			boxes[to] = append(boxes[to], name)
		case "value":
			values[key] = n
		case "opened":
			opened = true
			faults = h.check(boxes, values)
			h.settle(boxes, values)
		case "put":
			h.put(name)
		case "stored":
			h.stored(name)
		case "delete":
			h.delete(name)
		case "deleted":
			h.deleted(name)
		case "write":
			h.write(key, n)
		case "durable":
			h.durable(key, n)
		default:
			return opened, append(faults, "child: "+line)
		}
	}
}

// A pipeTeller tells the parent, at once.
type pipeTeller struct{ mu sync.Mutex }

func (p *pipeTeller) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(os.Stdout, format+"\n", args...)
}

func (p *pipeTeller) put(name string)           { p.say("put %s", name) }
func (p *pipeTeller) stored(name string)        { p.say("stored %s", name) }
func (p *pipeTeller) delete(name string)        { p.say("delete %s", name) }
func (p *pipeTeller) deleted(name string)       { p.say("deleted %s", name) }
func (p *pipeTeller) write(key string, n int)   { p.say("write %s %d", key, n) }
func (p *pipeTeller) durable(key string, n int) { p.say("durable %s %d", key, n) }

// child is the process that is killed. It tells what it finds, and then what it
// does.
func child(what string) {
	number, dir, _ := strings.Cut(what, " ")
	seed, _ := strconv.ParseUint(number, 10, 64)
	p := new(pipeTeller)
	db, err := Open(dir, nil)
	if err != nil {
		p.say("open: %v", err)
		return
	}
	boxes, values, err := contents(db, people)
	if err != nil {
		p.say("read: %v", err)
		return
	}
	for _, names := range boxes {
		for _, name := range names {
			p.say("there %s", name)
		}
	}
	for key, n := range values {
		p.say("value %s %d", key, n)
	}
	p.say("opened")
	var wg sync.WaitGroup
	for i, who := range people {
		wg.Go(func() {
			l := newLoad(db, p, seed+uint64(i)<<32)
			l.next[who] = values[who]
			for _, to := range people { // numbers go on over all lives of the store
				l.next[to+"/"+who] = int(seed%1e6)*1e6 + 1
			}
			for {
				if err := l.step(who); err != nil {
					p.say("step: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}
