package mailbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sotto-relay/sotto/crypto"
)

// A StatusError is a relay's refusal.
type StatusError struct {
	Status     int           // as 403
	Sentence   string        // the relay's words, at most 200 bytes; may be empty
	RetryAfter time.Duration // zero: not said

	clock time.Time // the relay's, zero: not said
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("mailbox: the relay answered %d: %q", e.Status, e.Sentence)
}

// lasting says whether the same request would be refused again.
func (e *StatusError) lasting() bool {
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return e.Status < 500
}

var errTooLarge = errors.New("mailbox: the answer is larger than ClientOptions.AnswerBytes")

const (
	attemptTime = time.Minute      // of a request, without its waiting
	clockSlack  = 10 * time.Second // a Date may be so old when it is read
	sentenceMax = 200
)

// A call is a request that may be made more than once.
type call struct {
	make func(context.Context) (*http.Request, error) // anew each time, since a signature counts once
	read func(*http.Response) error                   // of an answer that is 200; nil: nothing
	once bool                                         // the relay's word alone has it made again
}

// do makes a request, reads the answer, and begins again if either fails in a way
// that may pass.
func (c *Client) do(ctx context.Context, call call) error {
	adjusted := false
	for n := 0; ; n++ {
		err := c.attempt(ctx, &call)
		if err == nil || ctx.Err() != nil {
			return err
		}
		var refused *StatusError
		wait := c.backoff(n)
		switch errors.As(err, &refused); {
		case refused == nil && call.once || errors.Is(err, errTooLarge):
			return err
		case refused == nil:
		case refused.Status == http.StatusUnauthorized && !adjusted && c.adjust(refused.clock):
			adjusted, wait = true, 0
		case refused.lasting():
			return err
		default:
			wait = max(wait, refused.RetryAfter)
		}
		if !pause(ctx, wait) {
			return errors.Join(ctx.Err(), err)
		}
	}
}

func (c *Client) attempt(ctx context.Context, call *call) error {
	if err := c.learnRelay(ctx); err != nil {
		return err
	}
	r, err := call.make(ctx)
	if err != nil {
		return err
	}
	wait, _ := strconv.Atoi(r.URL.Query().Get("wait"))
	ctx, cancel := context.WithTimeout(ctx, attemptTime+time.Duration(wait)*time.Second)
	defer cancel()
	return c.roundTrip(r.WithContext(ctx), call.read)
}

// roundTrip makes one request, and has read read the answer if it is 200.
func (c *Client) roundTrip(r *http.Request, read func(*http.Response) error) error {
	resp, err := c.http.Do(r)
	if err != nil {
		return withoutURL(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return statusError(resp)
	}
	if read == nil {
		return nil
	}
	return read(resp)
}

// withoutURL takes the URL out of an error, where a signature may stand.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return fmt.Errorf("mailbox: %w", err)
}

func statusError(resp *http.Response) error {
	e := &StatusError{Status: resp.StatusCode}
	var answer struct{ Error string }
	if json.NewDecoder(io.LimitReader(resp.Body, 4<<10)).Decode(&answer) == nil {
		e.Sentence = answer.Error[:min(len(answer.Error), sentenceMax)]
	}
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
		e.RetryAfter = time.Duration(n) * time.Second
	}
	e.clock, _ = http.ParseTime(resp.Header.Get("Date"))
	return e
}

// decode reads an answer that is JSON.
func (c *Client) decode(resp *http.Response, v any) error {
	body := &io.LimitedReader{R: resp.Body, N: c.options.AnswerBytes}
	if err := json.NewDecoder(body).Decode(v); err != nil {
		if body.N <= 0 {
			return errTooLarge
		}
		return withoutURL(err)
	}
	return nil
}

// request makes a request and signs it: in its header, or with Legacy in its query
// if it has no body.
func (c *Client) request(ctx context.Context, method, path string, q url.Values, body []byte) (*http.Request, error) {
	id := c.options.Identity
	if c.options.Legacy && body == nil {
		stamp := c.stamp()
		signed := url.Values{"pubkey": {id.String()}, "timestamp": {stamp}}
		signed.Set("signature", fmt.Sprintf("%x", id.Sign([]byte(id.String()+":"+stamp))))
		for name, values := range q {
			signed[name] = values
		}
		q = signed
	}
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, c.options.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, withoutURL(err)
	}
	if body == nil {
		r.Body, r.GetBody, r.ContentLength = nil, nil, 0
	} else {
		r.Header.Set("Content-Type", "application/json")
	}
	if !c.options.Legacy {
		stamp, nonce := c.stamp(), make([]byte, nonceSize)
		_, _ = rand.Read(nonce) // which never fails
		sig := id.Sign(headerText(*c.relayKey(), method, r.URL.RequestURI(), body, stamp, nonce))
		r.Header.Set("Authorization", fmt.Sprintf("%skey=%s,ts=%s,nonce=%x,sig=%x", scheme, id, stamp, nonce, sig))
	}
	return r, nil
}

func (c *Client) relayKey() *crypto.PublicKey {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.relay
}

// learnRelay asks the relay for its key, if it is needed and not known.
func (c *Client) learnRelay(ctx context.Context) error {
	if c.options.Legacy || c.relayKey() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.options.URL+"/relay/key", nil)
	if err != nil {
		return withoutURL(err)
	}
	return c.roundTrip(r, func(resp *http.Response) error {
		var answer struct{ Key string }
		if err := c.decode(resp, &answer); err != nil {
			return err
		}
		key, err := crypto.ParsePublicKey(answer.Key)
		if err != nil {
			return errAnswer
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.relay == nil {
			c.relay = &key
		}
		return nil
	})
}

// stamp returns a timestamp that it has not returned before.
func (c *Client) stamp() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last+1, time.Now().Add(c.ahead).UnixMilli())
	return strconv.FormatInt(c.last, 10)
}

// adjust has timestamps follow the relay's clock, if ours is off. With Legacy they
// do not, since there a relay could have us sign for a later time at another.
func (c *Client) adjust(clock time.Time) bool {
	if c.options.Legacy || clock.IsZero() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ahead := time.Until(clock)
	if (ahead - c.ahead).Abs() <= clockSlack {
		return false
	}
	c.ahead, c.last = ahead, 0
	return true
}

func (c *Client) backoff(n int) time.Duration {
	most := c.options.BackoffMin << min(n, 16)
	if most <= 0 || most > c.options.BackoffMax {
		most = c.options.BackoffMax
	}
	return mathrand.N(most)
}

// pause waits, and says whether ctx lasted.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
