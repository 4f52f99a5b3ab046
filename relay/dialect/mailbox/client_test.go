package mailbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
)

// newClient returns a client of the rig's; set may be nil.
func (r *rig) newClient(id *crypto.Identity, set func(*ClientOptions)) *Client {
	o := &ClientOptions{URL: "http://relay", Identity: id, Relay: r.Relay, HTTP: r.client}
	if set != nil {
		set(o)
	}
	c, err := NewClient(o)
	require.NoError(r.t, err)
	return c
}

// A roundTripper is a function as a http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// through has the client's requests go through f, whose next is the way to the relay.
func (r *rig) through(f func(r *http.Request, next http.RoundTripper) (*http.Response, error)) func(*ClientOptions) {
	return func(o *ClientOptions) {
		o.HTTP = &http.Client{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
			return f(req, r.client.Transport)
		})}
	}
}

// forms are the two ways a client signs.
func forms(t *testing.T, set func(*rig), f func(t *testing.T, r *rig, form func(*ClientOptions))) {
	for name, legacy := range map[string]bool{"header": false, "legacy": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, set, func(t *testing.T, r *rig) {
				f(t, r, func(o *ClientOptions) { o.Legacy = legacy })
			})
		})
	}
}

func TestNewClient(t *testing.T) {
	id := identity(t, 1)
	for _, u := range []string{"", "relay", "ftp://relay", "http://", "http://relay?x=y", "http://u:p@relay", "http://relay#f", ":"} {
		_, err := NewClient(&ClientOptions{URL: u, Identity: id})
		assert.Error(t, err, u)
	}
	_, err := NewClient(&ClientOptions{URL: "http://relay"})
	assert.Error(t, err)
}

func TestClient(t *testing.T) {
	forms(t, nil, func(t *testing.T, r *rig, form func(*ClientOptions)) {
		ctx := t.Context()
		alice, bob := r.newClient(r.alice, form), r.newClient(r.bob, form)
		want := []string{"hello", "\"\\\u0000\u2028é😀</", "third"}
		for _, b := range want {
			expires, err := alice.Store(ctx, r.bob.Public(), b)
			require.NoError(t, err)
			assert.True(t, expires.Equal(time.Now().Add(30*24*time.Hour)), expires)
		}
		letters, more, err := bob.Fetch(ctx, FetchOptions{Limit: 2, Lease: time.Minute})
		require.NoError(t, err)
		assert.True(t, more)
		require.Len(t, letters, 2)
		for i, l := range letters {
			assert.Equal(t, Letter{From: r.alice.Public(), Blob: want[i], Stored: l.Stored, ID: l.ID}, l)
			assert.True(t, l.Stored.Equal(time.Now()))
		}
		require.NoError(t, bob.Ack(ctx, letters[0].ID))
		require.NoError(t, bob.Ack(ctx, letters[0].ID))
		require.NoError(t, bob.Ack(ctx))
		letters, more, err = bob.Fetch(ctx, FetchOptions{})
		require.NoError(t, err)
		assert.False(t, more)
		require.Len(t, letters, 1)
		assert.Empty(t, letters[0].ID)
		time.Sleep(time.Minute)
		began := time.Now()
		letters, _, err = bob.Fetch(ctx, FetchOptions{Wait: 5 * time.Second})
		require.NoError(t, err)
		assert.Len(t, letters, 1, "its lease is over")
		letters, _, err = bob.Fetch(ctx, FetchOptions{Wait: 5 * time.Second})
		require.NoError(t, err)
		assert.Empty(t, letters)
		assert.Equal(t, 5*time.Second, time.Since(began))

		for _, blob := range []string{"", "\xff", "a\xed\xa0\x80"} {
			_, err := alice.Store(ctx, r.bob.Public(), blob)
			assert.Equal(t, errBlob, err)
		}
		body := storeBody(r.alice, r.bob.Public(), `"\ud800x"`)
		require.Equal(t, http.StatusOK, r.do("POST", "/relay/store", body).status)
		letters, _, err = bob.Fetch(ctx, FetchOptions{})
		require.NoError(t, err)
		assert.Equal(t, "\xed\xa0\x80x", letters[0].Blob)
	})
}

// TestClientURLs: what a legacy client signs stands in the URL, and nothing else
// does; a header's client has nothing there.
func TestClientURLs(t *testing.T) {
	forms(t, nil, func(t *testing.T, r *rig, form func(*ClientOptions)) {
		var asked []*http.Request
		record := r.through(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			asked = append(asked, req)
			return next.RoundTrip(req)
		})
		c := r.newClient(r.bob, func(o *ClientOptions) { form(o); record(o) })
		_, _, err := c.Fetch(t.Context(), FetchOptions{Limit: 1})
		require.NoError(t, err)
		_, err = c.Store(t.Context(), r.alice.Public(), "x")
		require.NoError(t, err)
		require.Len(t, asked, 2)
		if c.options.Legacy {
			assert.Equal(t, "/relay/fetch"+query(r.bob, time.Now())+"&limit=1", reordered(asked[0].URL))
			assert.Empty(t, asked[0].Header.Get("Authorization"))
		} else {
			assert.Equal(t, "/relay/fetch?limit=1", asked[0].URL.RequestURI())
			assert.NotEmpty(t, asked[0].Header.Get("Authorization"))
		}
		assert.Equal(t, "/relay/store", asked[1].URL.RequestURI())
	})
}

// reordered returns a target with its parameters in the order of query.
func reordered(u *url.URL) string {
	q := u.Query()
	return fmt.Sprintf("%s?pubkey=%s&timestamp=%s&signature=%s&limit=%s",
		u.Path, q.Get("pubkey"), q.Get("timestamp"), q.Get("signature"), q.Get("limit"))
}

// TestClientRetries: through answers that are lost, refusals that pass and connections
// that break, a blob is stored once; the pauses grow, and the relay's word counts.
func TestClientRetries(t *testing.T) {
	forms(t, nil, func(t *testing.T, r *rig, form func(*ClientOptions)) {
		tries, fault := 0, 6
		faulty := r.through(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			tries++
			if fault--; fault >= 4 { // it does not arrive
				return nil, errTest
			}
			resp, err := next.RoundTrip(req)
			if err == nil && fault >= 2 { // its answer does not
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				return nil, errTest
			}
			if err == nil && fault >= 1 {
				resp.StatusCode = http.StatusServiceUnavailable
				resp.Header.Set("Retry-After", "100")
			}
			return resp, err
		})
		c := r.newClient(r.alice, func(o *ClientOptions) { form(o); faulty(o) })
		began := time.Now()
		_, err := c.Store(t.Context(), r.bob.Public(), "x")
		require.NoError(t, err)
		assert.Equal(t, 6, tries)
		assert.GreaterOrEqual(t, time.Since(began), 100*time.Second)
		assert.Equal(t, []string{"x"}, r.pending(r.bob))

		// The answer that said "stored" is lost, and the blob fetched before the next.
		fault = 4
		r.fetch(r.bob, "")
		stored := make(chan error)
		go func() {
			_, err := c.Store(t.Context(), r.bob.Public(), "y")
			stored <- err
		}()
		synctest.Wait()
		time.Sleep(time.Millisecond)
		assert.Equal(t, []string{"y"}, blobs(r.fetch(r.bob, "")))
		require.NoError(t, <-stored)
		assert.Empty(t, r.pending(r.bob))
	})
}

// TestClientGivesUp: at what does not pass, at the end of its context, and with a
// blob in time for the relay to know it.
func TestClientGivesUp(t *testing.T) {
	forms(t, func(r *rig) { r.contacts = contacts{r.bob.Public(): true} }, func(t *testing.T, r *rig, form func(*ClientOptions)) {
		var refused *StatusError
		_, err := r.newClient(r.alice, form).Store(t.Context(), r.bob.Public(), "x")
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, http.StatusForbidden, refused.Status)
		assert.Equal(t, `mailbox: the relay answered 403: "not a contact of this relay"`, err.Error())
		err = r.newClient(r.alice, form).Receive(t.Context(), func(context.Context, *Letter) error { return nil })
		require.ErrorAs(t, err, &refused)

		down := r.through(func(*http.Request, http.RoundTripper) (*http.Response, error) { return nil, errTest })
		c := r.newClient(r.bob, func(o *ClientOptions) { form(o); down(o) })
		began := time.Now()
		_, err = c.Store(t.Context(), r.alice.Public(), "x")
		assert.ErrorIs(t, err, errTest)
		assert.Equal(t, storeTime, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, _, err = c.Fetch(ctx, FetchOptions{Lease: time.Minute})
		assert.ErrorIs(t, err, errTest)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotContains(t, err.Error(), "relay/", "no URL")
		assert.NotContains(t, err.Error(), r.bob.String())
		assert.Equal(t, storeTime+time.Hour, time.Since(began))
		_, _, err = c.Fetch(t.Context(), FetchOptions{})
		assert.ErrorIs(t, err, errTest, "letters may be lost, and that is told")
	})
}

// TestClientHangs: an attempt that gets no answer is given up.
func TestClientHangs(t *testing.T) {
	forms(t, nil, func(t *testing.T, r *rig, form func(*ClientOptions)) {
		tries := 0
		hang := r.through(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			if tries++; tries < 3 {
				<-req.Context().Done()
				return nil, req.Context().Err()
			}
			return next.RoundTrip(req)
		})
		c := r.newClient(r.bob, func(o *ClientOptions) { form(o); hang(o) })
		began := time.Now()
		_, _, err := c.Fetch(t.Context(), FetchOptions{Wait: 10 * time.Second, Lease: time.Second})
		require.NoError(t, err)
		assert.InDelta(t, 150, time.Since(began).Seconds(), 2)
	})
}

// TestClientPins: it signs for the key that was given, or that the relay named first.
func TestClientPins(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		other := identity(t, 77).Public()
		var refused *StatusError
		_, _, err := r.newClient(r.bob, func(o *ClientOptions) { o.Relay = &other }).Fetch(t.Context(), FetchOptions{})
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, http.StatusUnauthorized, refused.Status)

		asked := 0
		c := r.newClient(r.bob, func(o *ClientOptions) {
			o.Relay = nil
			r.through(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
				if req.URL.Path == "/relay/key" {
					if asked++; asked == 1 {
						return nil, errTest
					}
				}
				return next.RoundTrip(req)
			})(o)
		})
		for range 2 {
			_, _, err = c.Fetch(t.Context(), FetchOptions{Lease: time.Second})
			require.NoError(t, err)
		}
		assert.Equal(t, 2, asked)
		assert.Equal(t, *r.Relay, *c.relayKey())
	})
	bubble(t, func(r *rig) { r.Relay = nil }, func(t *testing.T, r *rig) {
		var refused *StatusError
		_, _, err := r.newClient(r.bob, nil).Fetch(t.Context(), FetchOptions{})
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, http.StatusNotFound, refused.Status)
	})
}

// TestClientClock: a clock that is off follows the relay's, but for legacy signatures.
func TestClientClock(t *testing.T) {
	forms(t, nil, func(t *testing.T, r *rig, form func(*ClientOptions)) {
		c := r.newClient(r.bob, form)
		c.ahead = -time.Hour
		_, _, err := c.Fetch(t.Context(), FetchOptions{})
		if c.options.Legacy {
			assert.Error(t, err)
			return
		}
		require.NoError(t, err)
		c.ahead, c.last = 2*time.Hour, 0
		_, _, err = c.Fetch(t.Context(), FetchOptions{})
		require.NoError(t, err)
	})
}

// TestClientDistrusts: answers that are not what they should be, too large ones,
// redirects.
func TestClientDistrusts(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		var status int
		var body string
		answer := r.through(func(req *http.Request, _ http.RoundTripper) (*http.Response, error) {
			return &http.Response{
				StatusCode: status, Header: http.Header{"Location": {"http://elsewhere/"}}, Body: io.NopCloser(strings.NewReader(body)), Request: req,
			}, nil
		})
		c := r.newClient(r.bob, func(o *ClientOptions) { answer(o); o.AnswerBytes = 1000 })
		fetch := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, _, err := c.Fetch(ctx, FetchOptions{Lease: time.Second})
			return err
		}
		status = http.StatusOK
		for _, bad := range []string{
			"", "{", "[]", `{"blobs":[{"blob":1,"sender":"` + r.bob.String() + `"}]}`, `{"blobs":[{"sender":"` + r.bob.String() + `"}]}`,
			`{"blobs":[{"blob":"x","sender":"12"}]}`, `{"blobs":[{"blob":"x","sender":"` + r.bob.String() + `","timestamp":"x"}]}`,
		} {
			body = bad
			assert.Error(t, fetch(), bad)
		}
		body = `{"blobs":[` + strings.Repeat(" ", 1000)
		assert.Equal(t, errTooLarge, fetch())
		status = http.StatusFound
		var refused *StatusError
		require.ErrorAs(t, fetch(), &refused)
		assert.Equal(t, http.StatusFound, refused.Status)
		status, body = http.StatusForbidden, `{"error":"`+strings.Repeat("x", 1000)+`"}`
		require.ErrorAs(t, fetch(), &refused)
		assert.Len(t, refused.Sentence, 200)
	})
}

// receivers are Receive and Stream.
var receivers = map[string]func(*Client, context.Context, func(context.Context, *Letter) error) error{
	"Receive": (*Client).Receive, "Stream": (*Client).Stream,
}

// TestReceive: letters come in order, each once, through connections that break and
// acknowledgements that are lost, and are gone in the end.
func TestReceive(t *testing.T) {
	for name, receive := range receivers {
		forms(t, nil, func(t *testing.T, r *rig, form func(*ClientOptions)) {
			n := 0
			faulty := r.through(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
				n++
				if n%3 == 0 {
					return nil, errTest
				}
				resp, err := next.RoundTrip(req)
				if err == nil && n%3 == 1 && resp.StatusCode == http.StatusOK {
					resp.Body = &cutBody{resp.Body, 50 * n}
				}
				return resp, err
			})
			c := r.newClient(r.bob, func(o *ClientOptions) { form(o); faulty(o) })
			var want []string
			for i := range 50 {
				want = append(want, fmt.Sprintf("%s %d", name, i))
			}
			go func() {
				for _, b := range want {
					r.mustStore(r.alice, r.bob.Public(), b)
					time.Sleep(3 * time.Second)
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			var mu sync.Mutex
			var got []string
			err := receive(c, ctx, func(_ context.Context, l *Letter) error {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, l.Blob)
				return nil
			})
			assert.ErrorIs(t, err, context.DeadlineExceeded, name)
			assert.ElementsMatch(t, want, got, name)
			synctest.Wait()
			time.Sleep(time.Hour)
			assert.Empty(t, r.pending(r.bob), name)
		})
	}
}

// A cutBody fails after some bytes.
type cutBody struct {
	io.ReadCloser
	left int
}

func (b *cutBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errTest
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// TestReceiveHandleFails: the letter stays, what was handled before is gone, and the
// error comes back.
func TestReceiveHandleFails(t *testing.T) {
	for name, receive := range receivers {
		forms(t, nil, func(t *testing.T, r *rig, form func(*ClientOptions)) {
			r.mustStore(r.alice, r.bob.Public(), "a", "b", "c")
			err := receive(r.newClient(r.bob, form), t.Context(), func(_ context.Context, l *Letter) error {
				if l.Blob == "b" {
					return errTest
				}
				return nil
			})
			assert.ErrorIs(t, err, errTest, name)
			time.Sleep(receiveLease)
			assert.Equal(t, []string{"b", "c"}, r.pending(r.bob), name)
		})
	}
}

// TestStreamGoesSilent: a connection on which nothing comes any more is given up.
func TestStreamGoesSilent(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		streams := 0
		silent := r.through(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			if streams++; streams == 1 {
				body, _ := io.Pipe()
				context.AfterFunc(req.Context(), func() { _ = body.Close() })
				return &http.Response{StatusCode: http.StatusOK, Body: body, Request: req}, nil
			}
			return next.RoundTrip(req)
		})
		c := r.newClient(r.bob, silent)
		r.mustStore(r.alice, r.bob.Public(), "x")
		began := time.Now()
		err := c.Stream(t.Context(), func(context.Context, *Letter) error { return errTest })
		assert.ErrorIs(t, err, errTest)
		assert.InDelta(t, (3 * lookAgain).Seconds(), time.Since(began).Seconds(), 1)
	})
}

// TestStreamSlowHandler: a letter whose lease is over, since the handler of another
// took its time, comes again and is not handed over again; the connection lasts.
func TestStreamSlowHandler(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		streams := 0
		count := r.through(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			if req.URL.Path == "/relay/stream" {
				streams++
			}
			return next.RoundTrip(req)
		})
		var want []string
		for i := range 3 {
			want = append(want, fmt.Sprint(i))
		}
		r.mustStore(r.alice, r.bob.Public(), want...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var got []string
		err := r.newClient(r.bob, count).Stream(ctx, func(ctx context.Context, l *Letter) error {
			got = append(got, l.Blob)
			if l.Blob == "1" {
				time.Sleep(receiveLease + time.Minute)
			}
			return ctx.Err()
		})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, want, got)
		assert.Equal(t, 1, streams)
		synctest.Wait()
		assert.Empty(t, r.pending(r.bob))
	})
}

// TestSilence: only reading counts, not how long it takes until a letter is taken.
func TestSilence(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		silent := make(chan time.Time, 1)
		silence := time.AfterFunc(time.Hour, func() { silent <- time.Now() })
		body, events := io.Pipe()
		letters, ended := make(chan Letter), make(chan error)
		go func() { ended <- r.newClient(r.bob, nil).readEvents(t.Context(), body, letters, silence) }()
		_, err := fmt.Fprintf(events, "data: {\"blob\":\"x\",\"sender\":\"%s\"}\n\n", r.alice)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		assert.Empty(t, silent)
		assert.Equal(t, "x", (<-letters).Blob)
		began := time.Now()
		assert.Equal(t, 3*lookAgain, (<-silent).Sub(began))
		_ = events.Close()
		assert.Error(t, <-ended)
	})
}

// TestReceiveFromCrow: a relay that knows neither leases nor waiting.
func TestReceiveFromCrow(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		crow := r.through(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			q := req.URL.Query()
			q.Del("lease")
			q.Del("wait")
			q.Del("limit")
			req.URL.RawQuery = q.Encode()
			return next.RoundTrip(req)
		})
		r.mustStore(r.alice, r.bob.Public(), "a", "b")
		c := r.newClient(r.bob, func(o *ClientOptions) { o.Legacy = true; crow(o) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			time.Sleep(20 * time.Second)
			r.mustStore(r.alice, r.bob.Public(), "c")
		}()
		var got []string
		err := c.Receive(ctx, func(_ context.Context, l *Letter) error {
			assert.Empty(t, l.ID)
			got = append(got, l.Blob)
			return nil
		})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, []string{"a", "b", "c"}, got)
	})
}

// FuzzEvents: whatever comes in a stream is letters or an error.
func FuzzEvents(f *testing.F) {
	a := &answer{buf: []byte("data: ")}
	a.blob(&inbox.Entry{Data: []byte("x\xed\xa0\x80"), From: address([32]byte{1}), Stored: time.UnixMilli(1767225600000)}, "00")
	f.Add(append(bytes.Clone(a.buf), "\n\n:\n\n"...))
	f.Add([]byte("data:\n\n"))
	f.Add([]byte("data: {\"blob\":\"\\ud800\"}\n\n"))
	id := identity(f, 1)
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := NewClient(&ClientOptions{URL: "http://relay", Identity: id, AnswerBytes: 1 << 16})
		require.NoError(t, err)
		letters := make(chan Letter, len(body))
		err = c.readEvents(t.Context(), bytes.NewReader(body), letters, time.NewTimer(time.Hour))
		require.Error(t, err)
		close(letters)
		for l := range letters {
			b, err := json.Marshal(l.Blob)
			require.NoError(t, err)
			require.LessOrEqual(t, len(b), 4*len(body))
		}
	})
}
