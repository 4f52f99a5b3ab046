package mailbox

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/sotto-relay/sotto/crypto"
)

// defaultLease is that of a stream that does not say how long.
const defaultLease = time.Minute

// stream answers GET /relay/stream: Server-Sent Events until the client goes, the
// context of the request ends, or a write fails. Blobs that were not acknowledged by
// then are visible again at once.
func (h *handler) stream(w http.ResponseWriter, r *http.Request) error {
	q, err := queryOf(r, "pubkey", "signature", "timestamp", "lease")
	if err != nil {
		return err
	}
	p, err := h.proofOf(r, q)
	if err != nil {
		return err
	}
	lease, ok := parseSeconds(q.Get("lease"), defaultLease)
	if !ok || lease == 0 || lease > h.MaxLease {
		return malformed("lease is not a number of seconds that this relay gives")
	}
	ctx := r.Context()
	if err := h.check(ctx, p); err != nil {
		return err
	}
	if err := h.beginStream(ctx, p); err != nil {
		return err
	}
	leave, err := h.wait(p.key)
	if err != nil {
		return err
	}
	defer leave()

	a := h.newAnswer(w, "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy that collects answers would hold it up
	s := &streaming{answer: a, h: h, to: p.key, lease: lease}
	defer func() { h.release(s.to, s.held) }()
	s.run(ctx)
	return nil
}

// beginStream has a proof count as used: a stream has no end that could be written.
func (h *handler) beginStream(ctx context.Context, p *proof) error {
	end, err := h.begin(ctx, p)
	if err != nil {
		return err
	}
	defer end()
	if p.nonce != nil {
		return nil
	}
	return h.use(ctx, p)
}

// A streaming is an answer without an end.
type streaming struct {
	*answer
	h     *handler
	to    crypto.PublicKey
	lease time.Duration
	held  []held
}

func (s *streaming) run(ctx context.Context) {
	stored, cancel := s.h.srv.Watch(address(s.to))
	defer cancel()
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for {
		s.buf = append(s.buf, ":\n\n"...) // a comment, which keeps the connection alive
		if s.events(ctx) != nil || s.flush() != nil {
			return
		}
		select {
		case <-stored:
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// events appends the blobs that are there.
func (s *streaming) events(ctx context.Context) error {
	now, to := time.Now(), address(s.to)
	s.held = slices.DeleteFunc(s.held, func(b held) bool { return !now.Before(b.until) })
	for e, err := range s.h.srv.Inbox.Entries(ctx, to, 0) {
		if err != nil {
			return err
		}
		until := time.Now().Add(s.lease)
		leased, err := s.h.srv.Inbox.Lease(ctx, to, until, e.Seq)
		if err != nil {
			return err
		}
		if len(leased) == 0 {
			continue
		}
		b := held{e.Seq, e.ID, until}
		s.held = append(s.held, b)
		s.buf = append(s.buf, "data: "...)
		s.blob(e, s.h.blobID(b))
		s.buf = append(s.buf, "\n\n"...)
		if s.err != nil {
			return s.err
		}
	}
	return nil
}
