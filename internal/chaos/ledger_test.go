package chaos

import (
	"fmt"
	"sync"
)

// A route is from whom to whom.
type route struct{ from, to string }

func (r route) String() string { return r.from + " to " + r.to }

// A ledger compares what applications were given with what was sent. Messages of
// a route have the numbers 1, 2, 3, ….
type ledger struct {
	mu     sync.Mutex
	sent   map[route]int     // the last number given
	got    map[route]int     // the last number that arrived
	gaps   map[string]bool   // overtaken, and have not arrived yet
	last   map[string]string // the latest arrival at a recipient since its birth
	fatal  map[string]bool   // arrived when their recipient died: may come again
	again  int               // how many of these did
	total  int               // arrived, each once
	faults []string
}

func newLedger() *ledger {
	return &ledger{
		sent: make(map[route]int), got: make(map[route]int), gaps: make(map[string]bool),
		last: make(map[string]string), fatal: make(map[string]bool),
	}
}

// next returns the number of the next message.
func (l *ledger) next(r route) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[r]++
	return l.sent[r]
}

// arrive notes what an application was given.
func (l *ledger) arrive(r route, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := fmt.Sprint(r, " ", n)
	defer func() { l.last[r.to] = name }()
	if l.fatal[name] {
		delete(l.fatal, name)
		l.again++
		return
	}
	switch before := l.got[r]; {
	case n == before+1:
		l.got[r] = n
		l.total++
	case l.gaps[name]:
		l.faults = append(l.faults, fmt.Sprintf("%s: came late, after %d", name, before))
		delete(l.gaps, name)
		l.total++
	case n <= before:
		l.faults = append(l.faults, fmt.Sprintf("%s: came a second time, after %d", name, before))
	default:
		l.faults = append(l.faults, fmt.Sprintf("%s: came after %d", name, before))
		for i := before + 1; i < n; i++ {
			l.gaps[fmt.Sprint(r, " ", i)] = true
		}
		l.got[r] = n
		l.total++
	}
}

// die notes that a recipient died: what it was given last may come again.
func (l *ledger) die(who string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fatal[l.last[who]] = true
	delete(l.last, who)
}

// missing returns how many messages have not arrived that should have.
func (l *ledger) missing() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = len(l.gaps)
	for r, sent := range l.sent {
		n += sent - l.got[r]
	}
	return n
}
