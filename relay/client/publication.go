package client

import (
	"bytes"
	"context"
	"sync"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// A Publication is what was published to a topic or sent to a room, with its
// publisher's signature verified, or tells of a gap. It is the application's.
type Publication struct {
	// Gap says that here publications are missing, or may be: the connection was
	// lost meanwhile, the relay dropped some, they were not taken in time, or a
	// Group has other blinded names from here on. All else is zero.
	Gap bool

	Topic    string           // or the room
	From     crypto.PublicKey // who signed topic, ID and Data
	ID       [16]byte         // the publisher's; zero: none
	Data     []byte
	Retained bool // it was published before, and kept; see Subscribe
}

// A sealer hides from relays what publications say, and maybe their names (spec
// native.md, "Sealing", on groups and blinded topics). Its methods may be called
// concurrently.
type sealer interface {
	// name returns what a relay is asked for in the place of a filter or a room, or
	// told in the place of a topic whose retained value is to go.
	name(feedKey) (feedKey, error)

	// seal returns what is published, and to which topic or room, in the place of data.
	seal(to feedKey, data []byte) (feedKey, []byte, error)

	// retains is told of what seal has made, before it is published to be retained.
	retains(ctx context.Context, name string, data []byte) error

	// open changes a publication, which was verified as it came, to what it says. An
	// error drops it. One without data was not sealed: a retained value goes.
	open(*Publication) error
}

// What waits for a loop, unless Buffer says less: enough for what a relay has
// retained of many topics, which comes faster than it is verified.
const (
	feedBytes    = 16 << 20
	feedOverhead = 256 // counted for each publication
)

// A feed is the stream of publications of one Subscription or Room. The goroutine
// that reads adds to it and never waits: what there is no room for pushes the
// oldest out, which makes a gap.
type feed struct {
	asked  feedKey // by the application
	key    feedKey // of the relay; the name is under standing's mu, as it may change
	most   int
	sealer sealer // may be nil
	count  *counters

	// Under standing's mu.
	asking *call // for it alone, in the session in which it began; nil: no matter
	alone  bool  // nothing was asked for under its key then

	more    chan struct{} // with room for one: take may have something
	settled chan struct{} // closed at the first answer of the relay, or the end
	done    chan struct{} // closed at the end

	mu      sync.Mutex
	queue   []frame.Brep // with payloads of their own; without a type: a gap
	bytes   int
	live    bool // what comes now is for it
	answers int
	members int   // of a room, when it was joined
	err     error // why it has ended
}

// A feedKey says what the relay is asked for.
type feedKey struct {
	as   frame.Type // that publishers send: PUBLISH or ROOM_SEND
	name string     // a filter, or a room
}

func newFeed(key feedKey, o subscribeOptions, count *counters) *feed {
	return &feed{
		asked: key, key: key, most: o.buffer, sealer: o.sealer, count: count,
		more: make(chan struct{}, 1), settled: make(chan struct{}), done: make(chan struct{}),
	}
}

// wire returns what the relay is to be asked for at present.
func (f *feed) wire() (feedKey, error) {
	if f.sealer == nil {
		return f.asked, nil
	}
	return f.sealer.name(f.asked)
}

// start begins the stream with the relay's answer, or goes on with it in another
// session.
func (f *feed) start(members int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || f.live {
		return
	}
	if f.answers++; f.answers == 1 {
		close(f.settled)
	} else {
		f.add(frame.Brep{})
	}
	f.live, f.members = true, members
}

// stop interrupts the stream: the session has ended.
func (f *feed) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live = false
}

// push adds a publication.
func (f *feed) push(b *frame.Brep) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.live {
		return
	}
	f.count.publications.Add(1)
	own := *b
	own.Payload = bytes.Clone(b.Payload)
	f.add(own)
}

// gap tells of one.
func (f *feed) gap() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.live {
		f.add(frame.Brep{})
	}
}

// add adds a publication or a gap. The caller holds mu.
func (f *feed) add(b frame.Brep) {
	last := len(f.queue) - 1
	if b.Type == 0 && last >= 0 && f.queue[last].Type == 0 {
		return // one tells as much as two
	}
	f.queue = append(f.queue, b)
	f.bytes += feedSize(&b)
	for len(f.queue) > f.most || f.bytes > feedBytes {
		f.pushOut()
	}
	signal(f.more)
}

func feedSize(b *frame.Brep) int {
	if b.Type == 0 {
		return 0
	}
	return len(b.Payload) + feedOverhead
}

// pushOut makes a gap of the oldest publication. The caller holds mu.
func (f *feed) pushOut() {
	if f.queue[0].Type == 0 {
		f.queue = f.queue[1:]
	}
	f.bytes -= feedSize(&f.queue[0])
	f.queue[0] = frame.Brep{}
	f.count.missed.Add(1)
	if len(f.queue) > 1 && f.queue[1].Type == 0 {
		f.queue = f.queue[1:]
	}
}

// take waits for the oldest publication or gap. What is in the queue comes before
// the error of the end.
func (f *feed) take(ctx context.Context) (frame.Brep, error) {
	if err := ctx.Err(); err != nil {
		return frame.Brep{}, err
	}
	for {
		b, ok, err := f.pop()
		if ok || err != nil {
			return b, err
		}
		select {
		case <-f.more:
		case <-f.done:
		case <-ctx.Done():
			return frame.Brep{}, ctx.Err()
		}
	}
}

func (f *feed) pop() (b frame.Brep, ok bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == 0 {
		return frame.Brep{}, false, f.err
	}
	b = f.queue[0]
	f.bytes -= feedSize(&b)
	f.queue[0] = frame.Brep{}
	f.queue = f.queue[1:]
	if len(f.queue) > 0 {
		signal(f.more) // for another goroutine that takes
	}
	return b, true, nil
}

// next waits for the next publication that is a good one.
func (f *feed) next(ctx context.Context, dropped func(from crypto.PublicKey, why error)) (*Publication, error) {
	for {
		b, err := f.take(ctx)
		switch {
		case err != nil:
			return nil, err
		case b.Type == 0:
			return &Publication{Gap: true}, nil
		}
		p, err := f.read(&b)
		if err == nil {
			return p, nil
		}
		dropped(b.Sender, err)
	}
}

// read verifies a publication. That is for the loop that takes it, so that many
// of them do not hold up letters.
func (f *feed) read(b *frame.Brep) (*Publication, error) {
	from := crypto.PublicKey(b.Sender)
	if err := crypto.VerifyFrame(from, uint8(f.key.as), b.ID, b.Payload, &b.Signature); err != nil {
		return nil, err
	}
	d, err := frame.DecodePublication(b.Payload)
	if err != nil {
		return nil, err
	}
	p := &Publication{
		Topic: string(d.Name), From: from, ID: b.ID, Data: d.Content,
		Retained: b.Flags&frame.FlagRetain != 0,
	}
	if f.sealer != nil {
		if len(p.Data) == 0 && f.key.as != frame.TypePublish {
			return nil, errUnsealed // there is nothing retained in a room
		}
		if err := f.sealer.open(p); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// end ends the stream. If left, by the application, who wants nothing more of it.
// Only the first call counts.
func (f *feed) end(err error, left bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return
	}
	f.err, f.live = err, false
	if left {
		f.queue, f.bytes = nil, 0
	}
	if f.answers == 0 {
		close(f.settled)
	}
	close(f.done)
}

// refused returns why the relay has not agreed to a feed that is settled, nil if it
// has.
func (f *feed) refused() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answers > 0 {
		return nil
	}
	return f.err
}

// reason returns why the stream has ended, nil if it has not.
func (f *feed) reason() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
