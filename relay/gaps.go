package relay

import "slices"

// gaps are the filters by which an outbox has lost publications since it was
// empty: a burst. All of it is under the outbox's lock.
type gaps struct {
	filters []Address
	told    int // of them
}

func (g *gaps) add(filter Address) {
	if filter != (Address{}) && !slices.Contains(g.filters, filter) {
		g.filters = append(g.filters, filter)
	}
}

// untold returns the filters that the session is to be told of.
func (o *outbox) untold() []Address {
	o.mu.Lock()
	defer o.mu.Unlock()
	g := &o.gaps
	filters := g.filters[g.told:]
	g.told = len(g.filters)
	return filters
}

// tellGaps tells the session what it has lost. by sees to the flushing.
func (p *Port) tellGaps(by origin) {
	for _, filter := range p.out.untold() {
		p.notifyBy(by, Notice{Kind: NoticeGap, Name: filter})
	}
}
