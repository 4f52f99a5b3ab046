package mailbox

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	receiveLimit = 16 // letters that are leased or unacknowledged at a time
	receiveWait  = 30 * time.Second
	receiveLease = 2 * time.Minute
	pollPause    = 5 * time.Second // between answers of a relay that does not wait
)

// A handler of letters that have come in. Returning nil acknowledges one.
type handleFunc = func(context.Context, *Letter) error

// Receive hands letters over, oldest first, one at a time, with long polls and
// leases: a letter is removed from the relay after handle has returned nil for it.
// So none is lost, and one may come again, if this process or the relay ends in
// between. Receive returns the error of handle, or ctx's, or a *StatusError for what
// does not pass.
//
// At a relay that knows no leases (Crow's) a letter is gone when it is handed over.
func (c *Client) Receive(ctx context.Context, handle func(context.Context, *Letter) error) error {
	in := &inbound{c: c, handle: handle, done: make(map[string]struct{})}
	for {
		asked := time.Now()
		letters, _, err := c.Fetch(ctx, FetchOptions{Limit: receiveLimit, Wait: receiveWait, Lease: receiveLease})
		if err != nil {
			return err
		}
		for i := range letters {
			if err := in.take(ctx, &letters[i]); err != nil {
				return errors.Join(err, in.ack(ctx))
			}
		}
		if err := in.ack(ctx); err != nil {
			return err
		}
		if len(letters) == 0 && time.Since(asked) < pollPause && !pause(ctx, pollPause) {
			return ctx.Err()
		}
	}
}

// Stream is Receive over one lasting request, so that letters come at once: for
// relays that have streams, which Crow's has not. It connects again when the
// connection breaks.
func (c *Client) Stream(ctx context.Context, handle func(context.Context, *Letter) error) error {
	in := &inbound{c: c, handle: handle, done: make(map[string]struct{})}
	for n := 0; ; n++ {
		began := time.Now()
		err := c.streamOnce(ctx, in)
		var refused *StatusError
		switch errors.As(err, &refused); {
		case ctx.Err() != nil:
			return ctx.Err()
		case in.failed != nil:
			return in.failed
		case refused != nil && refused.lasting():
			return err
		case time.Since(began) > c.options.BackoffMax:
			n = 0
		}
		wait := c.backoff(n)
		if refused != nil {
			wait = max(wait, refused.RetryAfter)
		}
		if !pause(ctx, wait) {
			return ctx.Err()
		}
	}
}

// streamOnce reads one stream to its end, which is an error. Letters that came with
// it are handed over to the last, also when the connection is gone.
func (c *Client) streamOnce(ctx context.Context, in *inbound) error {
	if err := c.learnRelay(ctx); err != nil {
		return err
	}
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	q := url.Values{"lease": {strconv.FormatInt(seconds(receiveLease), 10)}}
	r, err := c.request(reading, http.MethodGet, "/relay/stream", q, nil)
	if err != nil {
		return err
	}
	silence := time.AfterFunc(attemptTime, cancel)
	defer silence.Stop()
	return c.roundTrip(r, func(resp *http.Response) error {
		letters, ended := make(chan Letter, receiveLimit), make(chan error, 1)
		go func() {
			defer close(letters)
			ended <- c.readEvents(reading, resp.Body, letters, silence)
		}()
		defer func() {
			cancel() // which also ends the reading
			for range letters {
			}
		}()
		for l := range letters {
			if err := in.take(ctx, &l); err != nil {
				return errors.Join(err, in.ack(ctx))
			}
			if len(letters) == 0 || len(in.done) >= receiveLimit {
				if err := in.ack(ctx); err != nil {
					return err
				}
			}
		}
		return <-ended
	})
}

// readEvents reads the events of a stream. The relay says something every lookAgain,
// so a connection that is silent for longer is dead; silence ends it.
func (c *Client) readEvents(ctx context.Context, body io.Reader, letters chan<- Letter, silence *time.Timer) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, int(min(c.options.AnswerBytes, 1<<30)))
	for {
		silence.Reset(3 * lookAgain)
		more := lines.Scan()
		silence.Stop() // the handler may take its time
		if !more {
			break
		}
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue
		}
		var w wireLetter
		var l Letter
		if err := json.Unmarshal(data, &w); err != nil {
			return errAnswer
		}
		if err := w.letter(&l); err != nil {
			return err
		}
		select {
		case letters <- l:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := lines.Err(); err != nil {
		return withoutURL(err)
	}
	return io.ErrUnexpectedEOF
}

// inbound hands letters over and acknowledges them.
type inbound struct {
	c      *Client
	handle handleFunc
	failed error               // of handle
	done   map[string]struct{} // ids of letters that were taken and may not be acknowledged yet
}

// take hands a letter over, unless it has been before and comes again because the
// acknowledgement did not arrive.
func (in *inbound) take(ctx context.Context, l *Letter) error {
	if _, again := in.done[l.ID]; again {
		return nil
	}
	if in.failed = in.handle(ctx, l); in.failed != nil {
		return in.failed
	}
	if l.ID != "" {
		in.done[l.ID] = struct{}{}
	}
	return nil
}

// ack acknowledges what has been taken.
func (in *inbound) ack(ctx context.Context) error {
	if len(in.done) == 0 {
		return nil
	}
	ids := make([]string, 0, len(in.done))
	for id := range in.done {
		ids = append(ids, id)
	}
	if err := in.c.Ack(ctx, ids...); err != nil {
		return err
	}
	clear(in.done)
	return nil
}
