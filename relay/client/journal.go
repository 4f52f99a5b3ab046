package client

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
)

// A journal keeps the messages of an outbox in Config.Store. Their keys are
// numbers, u64, in the order of the outbox.
type journal struct {
	shelf  *shelf
	last   uint64          // number; under the outbox's mu
	life   context.Context // of the eraser
	giveUp context.CancelFunc

	mu      sync.Mutex
	stale   []string // keys to delete
	erasing bool     // somebody does
	eraser  sync.WaitGroup
}

// openJournal returns the journal, and what is in it, from first to last.
func openJournal(ctx context.Context, s *shelf, sender crypto.PublicKey) (j *journal, left []*pending, err error) {
	j = &journal{shelf: s}
	j.life, j.giveUp = context.WithCancel(context.Background())
	err = s.load(ctx, func(it inbox.Item) error {
		p, err := decodePending(it, sender)
		if err == nil {
			if now := time.Now(); p.made.After(now) {
				p.made = now // the clock was wrong
			}
			left = append(left, p)
			j.last = p.number
		}
		return err
	})
	return j, left, err
}

// next returns the number of the next message.
func (j *journal) next() uint64 {
	j.last++
	return j.last
}

// put records a message that has a number.
func (j *journal) put(ctx context.Context, p *pending) error {
	return j.shelf.state.Put(ctx, j.shelf.bucket, journalKey(p.number), encodePending(p))
}

// erase has a message deleted soon.
func (j *journal) erase(number uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stale = append(j.stale, journalKey(number))
	if !j.erasing {
		j.erasing = true
		j.eraser.Go(j.eraseStale)
	}
}

func (j *journal) eraseStale() {
	for {
		j.mu.Lock()
		n := min(len(j.stale), writtenTogether)
		keys := j.stale[:n:n]
		j.stale = j.stale[n:]
		j.erasing = n > 0
		j.mu.Unlock()
		if n == 0 {
			return
		}
		j.shelf.deleteIn(j.life, keys)
	}
}

func journalKey(number uint64) string { return string(binary.BigEndian.AppendUint64(nil, number)) }

// An entry is version u8 ‖ recipient 32 ‖ made u64 ms ‖ receipt asked for u8 ‖
// frame.
const (
	journalVersion = 1
	journalHead    = 1 + 32 + 8 + 1
)

func encodePending(p *pending) []byte {
	b := append(make([]byte, 0, journalHead+p.frame.Size()), journalVersion)
	b = append(b, p.to[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(p.made.UnixMilli()))
	return p.frame.Append(append(b, byte(p.until)))
}

func decodePending(it inbox.Item, sender crypto.PublicKey) (*pending, error) {
	b := it.Value
	if len(it.Key) != 8 || len(b) < journalHead || b[0] != journalVersion {
		return nil, errStored
	}
	f, err := frame.DecodeBrep(b[journalHead:])
	if err != nil {
		return nil, errStored
	}
	p := &pending{
		to: crypto.PublicKey(b[1:33]), frame: f,
		made:    time.UnixMilli(int64(binary.BigEndian.Uint64(b[33:]))),
		until:   Status(b[41]),
		settled: make(chan struct{}),
		number:  binary.BigEndian.Uint64([]byte(it.Key)),
		ready:   true,
	}
	switch {
	case p.number == 0, p.until < Handed, p.until > Read:
	case f.Sender != sender, f.ID == [16]byte{}, !isLetter(f.Type), f.Flags != frame.FlagReceipt, len(f.Payload) > maxPayload:
	default:
		return p, nil
	}
	return nil, errStored
}
