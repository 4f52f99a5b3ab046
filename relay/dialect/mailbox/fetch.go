package mailbox

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay"
)

const (
	// lookAgain is how often a request that waits looks by itself: blobs whose
	// lease has run out, or whose answer failed, come without a signal.
	lookAgain = 10 * time.Second

	// answerTime is how long an answer without a lease may take in all.
	answerTime = time.Hour
)

// A held blob is one that is leased.
type held struct {
	seq   uint64
	id    relay.ID
	until time.Time
}

// fetch answers GET /relay/fetch.
func (h *handler) fetch(w http.ResponseWriter, r *http.Request) error {
	q, err := queryOf(r, "pubkey", "signature", "timestamp", "limit", "wait", "lease")
	if err != nil {
		return err
	}
	p, err := h.proofOf(r, q)
	if err != nil {
		return err
	}
	limit, okLimit := parseCount(q.Get("limit"), 0)
	wait, okWait := parseSeconds(q.Get("wait"), 0)
	lease, okLease := parseSeconds(q.Get("lease"), 0)
	switch {
	case !okLimit || q.Has("limit") && limit == 0:
		return malformed("limit is not a number from 1 up")
	case !okWait:
		return malformed("wait is not a number of seconds")
	case !okLease || q.Has("lease") && lease == 0 || lease > h.MaxLease:
		return malformed("lease is not a number of seconds that this relay gives")
	}
	ctx := r.Context()
	if err := h.check(ctx, p); err != nil {
		return err
	}
	end, err := h.begin(ctx, p)
	if err != nil {
		return err
	}
	defer end()

	f := &fetching{h: h, answer: h.newAnswer(w, "application/json"), to: p.key, limit: limit, lease: lease}
	if err := f.run(ctx, min(wait, h.MaxWait)); err != nil {
		h.release(f.to, f.held)
		if !f.begun {
			return err
		}
		// The client is to see that this is not the whole answer.
		panic(http.ErrAbortHandler)
	}
	// From here on the client may be gone, and what it has been given is to go.
	ctx = context.WithoutCancel(ctx)
	if p.nonce == nil {
		err = h.use(ctx, p)
	}
	if lease == 0 {
		err = errors.Join(err, h.remove(ctx, p.key, f.held))
	}
	if err != nil {
		h.log.Error("mailbox: an answer may be given twice", "err", err)
	}
	return nil
}

// A fetching is an answer with the blobs of one mailbox. It leases each before it
// writes it.
type fetching struct {
	*answer
	h     *handler
	to    crypto.PublicKey
	limit int           // zero: none
	lease time.Duration // zero: none
	held  []held
	more  bool
}

// run writes the whole answer; before, it waits for blobs if there are none. It
// fails unless the client was there until the end could be written.
func (f *fetching) run(ctx context.Context, wait time.Duration) error {
	err := f.blobs(ctx)
	if err == nil && len(f.held) == 0 && wait > 0 {
		err = f.await(ctx, wait)
	}
	if err != nil {
		return err
	}
	f.buf = append(f.buf, `],"count":`...)
	f.buf = strconv.AppendInt(f.buf, int64(len(f.held)), 10)
	if f.more {
		f.buf = append(f.buf, `,"more":true`...)
	}
	f.buf = append(f.buf, '}')
	// A kernel takes what is written to a client that has closed; net/http reads
	// meanwhile, and knows. Later it says nothing: who has it all may close.
	if err := ctx.Err(); err != nil {
		return err
	}
	return f.finish()
}

// await looks for blobs until there are some, or the time is over.
func (f *fetching) await(ctx context.Context, wait time.Duration) error {
	leave, err := f.h.wait(f.to)
	if err != nil {
		return err
	}
	defer leave()
	stored, cancel := f.h.srv.Watch(address(f.to))
	defer cancel()
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	over := time.After(wait)
	for {
		if err := f.blobs(ctx); err != nil || len(f.held) > 0 {
			return err
		}
		select {
		case <-stored:
		case <-again.C:
		case <-over:
			return nil
		case <-ctx.Done(): // nobody is there, or the relay goes
			return refusalOf(relay.CodeGoingAway)
		}
	}
}

// blobs begins the answer, and appends the blobs that are there.
func (f *fetching) blobs(ctx context.Context) error {
	f.buf = append(f.buf[:0], `{"blobs":[`...)
	to := address(f.to)
	until := time.Now().Add(answerTime)
	if f.lease > 0 {
		// An answer that takes longer than the lease would have blobs in it that
		// others can have.
		until = time.Now().Add(f.lease)
	}
	for e, err := range f.h.srv.Inbox.Entries(ctx, to, 0) {
		if err != nil {
			return failed(err)
		}
		if f.limit > 0 && len(f.held) == f.limit {
			f.more = true
			return nil
		}
		leased, err := f.h.srv.Inbox.Lease(ctx, to, until, e.Seq)
		if err != nil {
			return failed(err)
		}
		if len(leased) == 0 {
			continue // another answer was faster
		}
		f.until = until
		b := held{e.Seq, e.ID, until}
		f.held = append(f.held, b)
		if len(f.held) > 1 {
			f.buf = append(f.buf, ',')
		}
		id := ""
		if f.lease > 0 {
			id = f.h.blobID(b)
		}
		if f.blob(e, id); f.err != nil {
			return f.err
		}
	}
	return nil
}

// release ends leases, but for those that have run out, which may be others' by now.
func (h *handler) release(to crypto.PublicKey, blobs []held) {
	var seqs []uint64
	for _, b := range blobs {
		if time.Now().Before(b.until) {
			seqs = append(seqs, b.seq)
		}
	}
	if len(seqs) == 0 {
		return
	}
	if err := h.srv.Inbox.Release(context.Background(), address(to), seqs...); err != nil {
		h.log.Error("mailbox: leases of an answer that failed stay until they run out", "err", err)
	}
}

// parseCount reads a number that may be missing.
func parseCount(s string, missing int) (n int, ok bool) {
	if s == "" {
		return missing, true
	}
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= 0 && n <= 1e6
}

func parseSeconds(s string, missing time.Duration) (time.Duration, bool) {
	n, ok := parseCount(s, int(missing/time.Second))
	return time.Duration(n) * time.Second, ok
}
