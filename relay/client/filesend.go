package client

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

const (
	// firstPart is how many bytes of a file go with its offer: few, as they come
	// unasked, and stay in the relay's window until the file is whole.
	firstPart = 16 << 10

	// firstReminder is how long a receiver may say nothing before the offer is sent
	// again: what it said can be lost when it is killed. Later ones take up to
	// 2^maxReminders times as long.
	firstReminder = 5 * time.Minute
	maxReminders  = 4

	// maxReturns is how often a receiver may go back without getting further in
	// between.
	maxReturns = 16
)

// A FileSource is a file to send. It is not changed while it is sent, or the
// receiver will not take it.
type FileSource struct {
	Name    string      // without a directory; crypto.SafeFileName holds
	Size    int64       // in bytes, exactly
	Content io.ReaderAt // required, for an empty file too

	// Transfer names this sending of this file to this recipient. Zero: a random
	// one. With the same one as before, the receiver goes on where it was
	// interrupted, also by a restart of either program.
	Transfer [16]byte

	// Progress is called, by SendFile's goroutine, when the receiver has written
	// more: that many bytes. Nil: nobody watches.
	Progress func(done int64)
}

// SendFile sends a file of any size, sealed, and returns nil when the receiver has
// it whole, with the right SHA-256, under its name. The file is read twice: the
// first time for the SHA-256.
//
// One small part is sent, and the rest once the receiver's [FilePolicy] has
// accepted: until then, and while the receiver is away, SendFile waits. Never are
// more than 16 parts of 256 KiB on their way, so that neither a slow receiver nor
// the relay has to keep the file. It goes on after every reconnect.
//
// ctx's end cancels the transfer. So does every error but that of a Client that
// ends: then the receiver keeps what it has, for FileSource.Transfer and
// [FilePolicy].Idle.
func (c *Client) SendFile(ctx context.Context, to crypto.PublicKey, f FileSource) error {
	if _, byHand := c.cfg.Contacts(to); byHand {
		return ErrFileContact
	}
	switch {
	case f.Size < 0 || f.Size > crypto.MaxTransferSize:
		return ErrTooLarge
	case !crypto.SafeFileName(f.Name):
		return fmt.Errorf("client: name of a file: %w", crypto.ErrMalformed)
	case f.Content == nil:
		return ErrFileContent
	}
	if f.Transfer == [16]byte{} {
		if _, err := rand.Read(f.Transfer[:]); err != nil {
			return err
		}
	}
	s := &sending{
		c: c, to: to, source: f,
		layout: layout{f.Size, min(f.Size, firstPart)},
		status: &outgoing{have: -1, most: -1, changed: make(chan struct{}, 1)},
		ended:  make(chan error), reminded: make(chan struct{}),
	}
	if err := s.hash(ctx); err != nil {
		return fmt.Errorf("client: reading the file: %w", err)
	}
	key := transferKey{to, f.Transfer}
	if !c.files.begin(key, s.status) {
		return ErrFileTransfer
	}
	defer c.files.end(key)

	ctx, withdraw := context.WithCancel(ctx)
	err := s.run(ctx)
	withdraw()
	s.parts.Wait()
	switch {
	case err == nil, c.life.Err() != nil, errors.Is(err, ErrFileRefused), errors.Is(err, ErrFileCancelled):
		return err
	}
	s.cancel()
	return err
}

// cancel tells the receiver that the transfer is over. It waits a second at most
// for the relay to know, as the program may end next.
func (s *sending) cancel() {
	ctx, stop := context.WithTimeout(s.c.life, time.Second)
	defer stop()
	ctl := crypto.TransferControl{Transfer: s.source.Transfer, Op: crypto.TransferCancel}
	p, err := s.c.preparePiece(ctx, s.to, ctl.Content())
	if err != nil || s.c.enqueue(ctx, p) != nil {
		return // the receiver's patience will end
	}
	select {
	case <-p.settled:
	case <-ctx.Done():
	}
}

// outgoing is what the receiver has said about a file that is sent.
type outgoing struct {
	changed chan struct{} // with room for one

	mu        sync.Mutex
	accepted  bool
	cancelled bool
	have      int64 // index of the latest part that it has; -1: none
	most      int64 // the highest that have was
	back      bool  // it misses what was sent after that
	returns   int   // how often that was so without progress in between
}

// hear takes what the receiver says. Who says the same again, or less, has lost
// what came after that: the offer in a restart, parts in a power cut.
func (o *outgoing) hear(c *crypto.TransferControl) {
	o.mu.Lock()
	defer o.mu.Unlock()
	have := int64(c.Have)
	switch {
	case c.Op == crypto.TransferCancel:
		o.cancelled = true
	case c.Op == crypto.TransferAccept && !o.accepted:
		o.accepted = true
	case c.Op == crypto.TransferAccept:
		o.accepted, o.have, o.back = false, -1, true
		o.returns++
	case have > o.have:
		o.accepted, o.have = true, have
		if have > o.most {
			o.most, o.returns = have, 0
		}
	default:
		o.have, o.back = have, true
		o.returns++
	}
	signal(o.changed)
}

// expectReturn does not count one return, as it is our doing.
func (o *outgoing) expectReturn() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.returns--
}

// A sending is a SendFile that runs. One goroutine owns it.
type sending struct {
	c      *Client
	to     crypto.PublicKey
	source FileSource
	sum    [32]byte
	layout layout
	status *outgoing

	next   int64      // index of the part that is sent next
	ended  chan error // what became of parts
	parts  sync.WaitGroup
	pauses int

	reminders int
	reminding bool          // there is a reminder that the receiver has not read
	reminded  chan struct{} // the end of that

	pause <-chan time.Time // until the relay is worth another try; nil: none
}

// hash computes the SHA-256 of the source.
func (s *sending) hash(ctx context.Context) error {
	h := sha256.New()
	if err := copyBytes(ctx, h, io.NewSectionReader(s.source.Content, 0, s.source.Size), s.source.Size); err != nil {
		return err
	}
	h.Sum(s.sum[:0])
	return nil
}

// copyBytes copies n bytes, unless ctx ends.
func copyBytes(ctx context.Context, w io.Writer, r io.Reader, n int64) error {
	for n > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		m, err := io.CopyN(w, r, min(n, 1<<20))
		n -= m
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		} else if err != nil {
			return err
		}
	}
	return nil
}

// run sends until the receiver has all.
func (s *sending) run(ctx context.Context) error {
	stalled, silent := time.NewTimer(retryTime), time.NewTimer(retryTime)
	defer stalled.Stop()
	defer silent.Stop()
	furthest := int64(-1)
	for {
		limit, have, err := s.heard()
		if err != nil {
			return err
		}
		if have > furthest {
			furthest, s.pauses, s.reminders = have, 0, 0
			stalled.Reset(retryTime)
			if s.source.Progress != nil {
				s.source.Progress(s.layout.offset(have + 1))
			}
		}
		if have == s.layout.parts()-1 {
			return nil
		}
		var slot chan<- struct{} // nil: nothing is to be sent
		if s.pause == nil && s.next <= limit {
			slot = s.c.files.slots
		}
		silent.Reset(firstReminder << min(s.reminders, maxReminders))
		select {
		case <-s.status.changed:
		case <-silent.C:
			if err := s.remind(ctx); err != nil {
				return err
			}
		case <-s.reminded:
			s.reminding = false
		case slot <- struct{}{}:
			if err := s.send(ctx); err != nil {
				return err
			}
		case err := <-s.ended:
			if err := s.settled(err); err != nil {
				return err
			}
		case <-s.pause:
			s.pause, s.next = nil, have+1
		case <-stalled.C:
			return ErrFileStalled
		case <-ctx.Done():
			return ctx.Err()
		case <-s.c.life.Done():
			return s.c.Err()
		}
	}
}

// heard returns up to which part it may send, and which the receiver has.
func (s *sending) heard() (limit, have int64, err error) {
	o := s.status
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.cancelled && !o.accepted:
		return 0, 0, ErrFileRefused
	case o.cancelled:
		return 0, 0, ErrFileCancelled
	case o.returns > maxReturns:
		return 0, 0, ErrFileStalled
	}
	last := s.layout.parts() - 1
	o.have = min(o.have, last)
	s.next = max(s.next, o.have+1)
	if o.back {
		o.back, s.next = false, o.have+1
	}
	if o.accepted {
		limit = min(o.have+fileWindow, last)
	}
	return limit, o.have, nil
}

// send sends the next part. Its slot and its receipt are left to a goroutine.
func (s *sending) send(ctx context.Context) error {
	p, err := s.piece(ctx, s.next)
	if err == nil {
		err = s.c.enqueue(ctx, p)
	}
	if err != nil {
		<-s.c.files.slots
		return err
	}
	s.next++
	s.parts.Go(func() {
		_, err := s.c.await(ctx, p)
		<-s.c.files.slots
		select {
		case s.ended <- err:
		case <-ctx.Done():
		}
	})
	return nil
}

// remind sends the offer again, unless that is on its way: to a receiver who is
// away it goes once.
func (s *sending) remind(ctx context.Context) error {
	if s.reminding {
		return nil
	}
	p, err := s.piece(ctx, 0)
	if err == nil {
		p.until = Read
		err = s.c.enqueue(ctx, p)
	}
	if err != nil {
		return err
	}
	s.reminders++
	s.reminding = true
	s.status.expectReturn()
	s.parts.Go(func() {
		_, _ = s.c.await(ctx, p) // the transfer does not depend on it
		select {
		case s.reminded <- struct{}{}:
		case <-ctx.Done():
		}
	})
	return nil
}

// piece makes the message with a part.
func (s *sending) piece(ctx context.Context, index int64) (*pending, error) {
	content, err := s.part(index)
	if err != nil {
		return nil, err
	}
	return s.c.preparePiece(ctx, s.to, content)
}

// part reads a part.
func (s *sending) part(index int64) (crypto.Content, error) {
	p := crypto.TransferPart{
		Transfer: s.source.Transfer, Index: uint32(index), Last: index == s.layout.parts()-1,
		Data: make([]byte, s.layout.length(index)),
	}
	n, err := s.source.Content.ReadAt(p.Data, s.layout.offset(index))
	switch {
	case n == len(p.Data): // EOF may be told with the last bytes
	case errors.Is(err, io.EOF):
		return crypto.Content{}, fmt.Errorf("client: reading the file: %w", io.ErrUnexpectedEOF)
	default:
		return crypto.Content{}, fmt.Errorf("client: reading the file: %w", err)
	}
	if index == 0 {
		p.Header = &crypto.TransferHeader{Name: s.source.Name, Size: s.source.Size, SHA256: s.sum}
	}
	content, err := p.Content()
	if err != nil {
		return crypto.Content{}, fmt.Errorf("client: content: %w", err)
	}
	return content, nil
}

// settled takes what has become of a part.
func (s *sending) settled(err error) error {
	if err == nil || !isPassing(err) {
		return err
	}
	if s.pause == nil {
		s.pause = time.After(backoffOf(s.pauses))
		s.pauses++
	}
	return nil
}

// isPassing says whether the relay has refused a message for something that
// passes.
func isPassing(err error) bool {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.Code {
	case frame.CodeRateLimited, frame.CodeOverloaded, frame.CodeQuota, frame.CodeInboxFull, frame.CodeStorageFull:
		return true
	}
	return false
}

// backoffOf is how long the relay is left alone after it refused for the n-th
// time, from 0.
func backoffOf(n int) time.Duration { return min(time.Second<<min(n, 10), time.Minute) }
