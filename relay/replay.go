package relay

import (
	"slices"
	"sync"
)

// replays are the retained values that a session is still to get.
type replays struct {
	mu      sync.Mutex
	queue   []*replay // one a filter at most; the first one is being sent
	running bool
}

// A replay is the retained values that one filter matches. It is not changed but
// for next, which belongs to the goroutine that sends.
type replay struct {
	space   *space
	filter  Address // with its own memory
	version uint64  // of the subscription
	next    string  // the first topic not looked at yet
}

// replay begins to send the values that a filter matches, or begins again. A
// goroutine does that, at most one a session, while there is something to send.
func (p *Port) replay(sp *space, filter Address, version uint64) {
	if found, next := sp.values.Topics(nil, filter.Name, "", aLook); len(found) == 0 && next == "" {
		return
	}
	filter.Name = string([]byte(filter.Name)) // it may be borrowed
	r := &replay{space: sp, filter: filter, version: version}
	all := &p.topics.replays
	all.mu.Lock()
	defer all.mu.Unlock()
	if i := all.index(filter); i >= 0 {
		all.queue[i] = r
	} else {
		all.queue = append(all.queue, r)
	}
	if !all.running {
		all.running = true
		p.s.pumps.Go(p.sendReplays)
	}
}

func (all *replays) index(filter Address) int {
	return slices.IndexFunc(all.queue, func(r *replay) bool { return r.filter == filter })
}

// cancel ends the replay of a filter.
func (all *replays) cancel(filter Address) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if i := all.index(filter); i >= 0 {
		all.queue = slices.Delete(all.queue, i, i+1)
	}
}

// first returns the replay to send now, nil if there is none any more.
func (all *replays) first() *replay {
	all.mu.Lock()
	defer all.mu.Unlock()
	if len(all.queue) == 0 {
		all.queue, all.running = nil, false
		return nil
	}
	return all.queue[0]
}

// done takes a replay out, unless another one is in its place.
func (all *replays) done(r *replay) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if i := slices.Index(all.queue, r); i >= 0 {
		all.queue = slices.Delete(all.queue, i, i+1)
	}
}

// sendReplays sends until nothing is left to send or the session ends.
func (p *Port) sendReplays() {
	p.out.mu.Lock()
	if p.out.replay == nil {
		p.out.replay = make(chan struct{}, 1)
	}
	p.out.mu.Unlock()
	all := &p.topics.replays
	var topics []string
	for r := all.first(); r != nil; r = all.first() {
		topics, r.next = p.s.topics.look(topics[:0], r.space, r.filter.Name, r.next)
		if !p.sendValues(r, topics) {
			return
		}
		if r.next == "" {
			all.done(r)
		}
	}
}

// sendValues queues the values of some topics, waiting for room. It returns false
// when the session goes down.
func (p *Port) sendValues(r *replay, topics []string) (on bool) {
	promised := false // to flush
	for len(topics) > 0 && p.ctx.Err() == nil {
		v := full
		if p.out.hasRoom(p.s.limits.FlushBytes) {
			v = p.sendValue(r, topics[0])
		}
		switch {
		case v == stopped:
			return false
		case v != full && v != held:
			promised = promised || v == first
			topics = topics[1:]
		case promised:
			promised = false
			p.flush()
		default:
			select {
			case <-p.out.replay:
			case <-p.ctx.Done():
			}
		}
	}
	if promised {
		p.flush()
	}
	return p.ctx.Err() == nil
}

// sendValue queues the value of a topic, unless there is none or it is not to be
// sent; then it answers unfit.
func (p *Port) sendValue(r *replay, topic string) verdict {
	lock := r.space.lock(topic)
	lock.Lock()
	defer lock.Unlock()
	value, ok := r.space.values.Get(topic)
	if !ok || value.live >= r.version {
		return unfit
	}
	all := &p.topics.replays
	all.mu.Lock() // so that nothing comes after the end of a subscription
	defer all.mu.Unlock()
	if !slices.Contains(all.queue, r) {
		return unfit
	}
	m := Message{
		To: Address{Realm: r.space.realm, Name: topic}, From: value.from, ID: value.id,
		Form: value.form, Flags: value.flags, Data: value.data, Retained: true,
	}
	v := p.out.pushMessage(replayed, &m, p.speaker.dialect, p.form)
	if v == first || v == pushed {
		p.s.count.accepted.Add(1)
		p.s.count.queued.Add(1)
	}
	return v
}

// hasRoom says whether retained values may be queued: few bytes wait, and half of
// the places are free for what is live.
func (o *outbox) hasRoom(bytes int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.slots == 0 || o.bytes < bytes && 2*o.slots < o.most.messages
}
