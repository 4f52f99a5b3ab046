package jsonmsg

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/crypto"
)

// An Event is what a Client has to tell: one of *[Message], *[Unreadable],
// *[PeerKey], *[Ack], *[Queued], *[RoomMessage], *[Publication], *[Matched],
// *[RelayError], *[Left], *[Registered] and *[Disconnected]. It is the
// application's.
//
// From and To are the relay's word for who an address is. Only what was opened with
// a peer's key is by the one who has that key.
type Event interface{ size() int }

// A Message came sealed for us from the holder of Key, which is the one that is
// pinned for From. ID is what an [Client.Ack] repeats, empty if the sender gave
// none; it is not sealed.
type Message struct {
	From string
	Key  crypto.X25519Key
	ID   string
	Data []byte
}

// An Unreadable message came and could not be opened, or was no message at all. Err
// is a *[KeyChangedError] or *[ForeignKeyError] when it brings another key than the
// one to expect, ErrNoKey when it brings none and none is known, an error of package
// crypto when it is none of that key's, transport.ErrTooLarge when it was skipped,
// or what the PinStore failed with. Pub, Nonce and CT are as they came.
type Unreadable struct {
	From, ID       string
	Pub, Nonce, CT string
	Err            error
}

// A PeerKey was seen for the first time, and is pinned (Err is nil); or a peer
// announced a key that is not taken: Err is a *[KeyChangedError], a
// *[ForeignKeyError], or what the PinStore failed with.
type PeerKey struct {
	Peer string
	Key  crypto.X25519Key
	Err  error
}

// An Ack says that From has the message with that ID. It is not sealed: a relay can
// make one up.
type Ack struct{ From, ID string }

// Queued says that To is away, and that the relay keeps the message with that ID
// for him.
type Queued struct{ To, ID string }

// A RoomMessage was sent to a room. What CT says is between its members, see
// [SharedKey].
type RoomMessage struct{ Room, From, CT string }

// A Publication has a topic that one of our filters matches. Retained: it is the
// value that the relay has kept, and not just published.
type Publication struct {
	Topic, From, CT string
	Retained        bool
}

// A Matched event comes for a match that nobody waits for any more: the context of
// [Client.FindMatch] ended before the relay heard of it.
type Matched struct{ Game, Peer string }

// Left says that we are no longer in a room, or subscribed to a filter (the other of
// the two is empty), since the relay has refused it after a reconnect.
type Left struct {
	Room, Filter string
	Err          error
}

// Registered says that the address is ours, for the first time or after a
// [Disconnected]. Queued messages were waiting: they came before it, but for
// datagrams, where they follow. Proven: the relay has had us prove that we have the
// key. After a reconnect, publications and room messages may have been missed.
type Registered struct {
	Queued int
	Proven bool
}

// Disconnected says that the connection is lost, and will be tried again.
type Disconnected struct{ Err error }

const eventSize = 64

func (e *Message) size() int     { return eventSize + len(e.Data) }
func (e *Unreadable) size() int  { return eventSize + len(e.CT) }
func (e *RoomMessage) size() int { return eventSize + len(e.CT) }
func (e *Publication) size() int { return eventSize + len(e.CT) }
func (*PeerKey) size() int       { return eventSize }
func (*Ack) size() int           { return eventSize }
func (*Queued) size() int        { return eventSize }
func (*Matched) size() int       { return eventSize }
func (*RelayError) size() int    { return eventSize }
func (*Left) size() int          { return eventSize }
func (*Registered) size() int    { return eventSize }
func (*Disconnected) size() int  { return eventSize }

// Events returns what comes in, in order, from first to last, as long as the loop
// goes on. It may be called again, and the next event comes then. If more than one
// loop runs, each event goes to one of them.
//
// While 1,024 events or 8 MiB wait to be taken, the Client does not read, and the
// relay keeps what is for it. (In datagrams it is lost.) A method that waits for an
// answer fails with ErrUntaken when that has been so for 10 s.
//
// The last pair has no event but the reason: ctx's error, or that of [Client.Err].
func (c *Client) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			e, err := c.in.take(ctx)
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// What may wait to be taken before reading stops; the last one may exceed it.
const (
	eventsWaiting = 1024
	eventBytes    = 8 << 20
	untakenTime   = 10 * time.Second
)

// clientEvents is the queue of events. All methods may be called by any goroutine.
type clientEvents struct {
	ready chan struct{} // with room for one: take may have something
	taken chan struct{} // with room for one: there may be room again
	done  chan struct{} // closed at the end

	mu    sync.Mutex
	queue []Event
	bytes int
	stall chan struct{} // closed, and replaced, when nothing was taken for too long
	end   error         // nothing more comes
}

func newClientEvents() *clientEvents {
	return &clientEvents{
		ready: make(chan struct{}, 1), taken: make(chan struct{}, 1),
		done: make(chan struct{}), stall: make(chan struct{}),
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (q *clientEvents) add(e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, e)
	q.bytes += e.size()
	signal(q.ready)
}

func (q *clientEvents) isFull() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queue) >= eventsWaiting || q.bytes >= eventBytes
}

// awaitRoom waits until another event may be added, or ctx ends.
func (q *clientEvents) awaitRoom(ctx context.Context) {
	for q.isFull() {
		t := time.NewTimer(untakenTime)
		select {
		case <-q.taken:
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
			q.mu.Lock()
			close(q.stall)
			q.stall = make(chan struct{})
			q.mu.Unlock()
		}
		t.Stop()
	}
}

// stalled returns what is closed when no answer can be read any more.
func (q *clientEvents) stalled() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stall
}

// take waits for the oldest event. What is in the queue comes before its end.
func (q *clientEvents) take(ctx context.Context) (Event, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for {
		if e, err := q.pop(); e != nil || err != nil {
			return e, err
		}
		select {
		case <-q.ready:
		case <-q.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (q *clientEvents) pop() (Event, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 {
		return nil, q.end
	}
	e := q.queue[0]
	q.queue[0] = nil
	q.queue = q.queue[1:]
	q.bytes -= e.size()
	if len(q.queue) > 0 {
		signal(q.ready) // for another goroutine that takes
	}
	signal(q.taken)
	return e, nil
}

// close adds the end to the queue, once.
func (q *clientEvents) close(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.end = err
	close(q.done)
}
