package mailbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/internal/ecma"
)

// ClientOptions are for [NewClient]. Zero fields mean what is said here.
type ClientOptions struct {
	URL      string           // of the relay: "https://relay.example.org"; required
	Identity *crypto.Identity // required

	// Relay is the key that the relay must have (pinning): what is signed for it is
	// worth nothing elsewhere. Nil: the one that it names when it is first asked.
	Relay *crypto.PublicKey

	// Legacy signs as version 1 does, with the key, the timestamp and the signature
	// in the URL of a fetch, where servers and proxies log it: for Crow's relay. It
	// names no relay, so whoever reads it can use it at another within 5 minutes.
	Legacy bool

	// HTTP makes the requests; its CheckRedirect is not used, since a signature is
	// for one path. Nil: http.DefaultTransport.
	HTTP *http.Client

	// Before attempt n to repeat a request, from 0, the client waits a random time of
	// at most BackoffMin·2ⁿ and BackoffMax (full jitter; 500 ms and 30 s), or as long
	// as the relay asks it to.
	BackoffMin, BackoffMax time.Duration

	// AnswerBytes bounds an answer, and an event of a stream (256 MiB).
	AnswerBytes int64
}

// A Client is one key's access to the mailbox of one relay. Its methods may be
// called concurrently. It has no goroutine but while a method runs, and nothing to
// close.
//
// Requests are repeated until their context ends, or the relay refuses them in a
// way that repeating does not mend; then the error is a *StatusError. No error
// holds a URL or a blob.
type Client struct {
	options ClientOptions
	http    http.Client

	mu    sync.Mutex
	relay *crypto.PublicKey // nil: not asked yet
	last  int64             // timestamp given, in Unix milliseconds
	ahead time.Duration     // of the relay's clock
}

// A Letter is a blob that has been fetched.
type Letter struct {
	From crypto.PublicKey

	// Blob is UTF-8. A surrogate without a partner, which a sender in JavaScript can
	// put there, is in its 3 bytes of WTF-8.
	Blob string

	Stored time.Time // when the relay took it
	ID     string    // for Ack; empty without a lease
}

// NewClient returns a client. It makes no request.
func NewClient(o *ClientOptions) (*Client, error) {
	c := &Client{options: *o, relay: o.Relay}
	u, err := url.Parse(o.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return nil, errors.New("mailbox: ClientOptions.URL is not http(s)://HOST")
	case o.Identity == nil:
		return nil, errors.New("mailbox: ClientOptions has no Identity")
	}
	c.options.URL = strings.TrimSuffix(u.String(), "/")
	if o.HTTP != nil {
		c.http = *o.HTTP
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	orDefault(&c.options.BackoffMin, 500*time.Millisecond)
	orDefault(&c.options.BackoffMax, 30*time.Second)
	orDefault(&c.options.AnswerBytes, 256<<20)
	return c, nil
}

// storeTime is how long a request to store is repeated: a relay knows it for a
// repeat for 10 minutes.
const storeTime = 9 * time.Minute

var errBlob = errors.New("mailbox: a blob is UTF-8, and not empty")

// Store stores a blob, which is UTF-8 and not empty, and returns when it expires.
// It is stored once, however often the request has to be repeated; for that it is
// repeated for nine minutes at most.
func (c *Client) Store(ctx context.Context, to crypto.PublicKey, blob string) (expires time.Time, err error) {
	if blob == "" || !utf8.ValidString(blob) {
		return time.Time{}, errBlob
	}
	recipient := []byte(`"` + to.String() + `"`)
	quoted := append(ecma.AppendEscaped([]byte{'"'}, []byte(blob)), '"')
	body := storeText(recipient, quoted)
	if c.options.Legacy {
		sig := c.options.Identity.Sign(body)
		body = fmt.Appendf(body[:len(body)-1], `,"signature":"%x","senderPubkey":"%s"}`, sig, c.options.Identity)
	}
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	var answer struct{ Expires time.Time }
	err = c.do(ctx, call{
		make: func(ctx context.Context) (*http.Request, error) {
			return c.request(ctx, http.MethodPost, "/relay/store", nil, body)
		},
		read: func(r *http.Response) error { return c.decode(r, &answer) },
	})
	return answer.Expires, err
}

// FetchOptions say what a fetch asks for. Crow's relay knows none of it.
type FetchOptions struct {
	Limit int           // at most so many letters; zero: all
	Wait  time.Duration // for a letter, if there is none, in seconds
	Lease time.Duration // hides the letters for so many seconds, until Ack; zero: they are removed
}

// Fetch returns letters, oldest first, and whether there are more than the limit.
// Without a lease they are gone from the relay, also if the answer is lost on its way:
// so then a connection that breaks is an error, and not tried again.
func (c *Client) Fetch(ctx context.Context, o FetchOptions) (letters []Letter, more bool, err error) {
	q := make(url.Values)
	set := func(name string, n int64) {
		if n > 0 {
			q.Set(name, strconv.FormatInt(n, 10))
		}
	}
	set("limit", int64(o.Limit))
	set("wait", seconds(o.Wait))
	set("lease", seconds(o.Lease))
	err = c.do(ctx, call{
		make: func(ctx context.Context) (*http.Request, error) {
			return c.request(ctx, http.MethodGet, "/relay/fetch", q, nil)
		},
		read: func(r *http.Response) error {
			letters, more, err = c.letters(r)
			return err
		},
		once: o.Lease <= 0,
	})
	return letters, more, err
}

// letters reads the answer to a fetch.
func (c *Client) letters(r *http.Response) (letters []Letter, more bool, err error) {
	var answer struct {
		Blobs []wireLetter
		More  bool
	}
	if err := c.decode(r, &answer); err != nil {
		return nil, false, err
	}
	letters = make([]Letter, len(answer.Blobs))
	for i := range answer.Blobs {
		if err := answer.Blobs[i].letter(&letters[i]); err != nil {
			return nil, false, err
		}
	}
	return letters, answer.More, nil
}

// seconds rounds up.
func seconds(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }

// Ack removes letters that were fetched with a lease. To acknowledge again changes
// nothing.
func (c *Client) Ack(ctx context.Context, ids ...string) error {
	if len(ids) == 0 {
		return nil
	}
	fields := map[string]any{"ids": ids}
	return c.do(ctx, call{make: func(ctx context.Context) (*http.Request, error) {
		if c.options.Legacy {
			stamp := c.stamp()
			sig := c.options.Identity.Sign([]byte(c.options.Identity.String() + ":" + stamp + ackSuffix(ids)))
			fields["pubkey"], fields["timestamp"], fields["signature"] = c.options.Identity.String(), stamp, fmt.Sprintf("%x", sig)
		}
		body, err := json.Marshal(fields)
		if err != nil {
			return nil, err
		}
		return c.request(ctx, http.MethodPost, "/relay/ack", nil, body)
	}})
}

// A wireLetter is a blob as it stands in an answer.
type wireLetter struct {
	Blob      json.RawMessage
	Sender    string
	Timestamp int64
	ID        string
}

var errAnswer = errors.New("mailbox: the relay's answer is not what it should be")

func (w *wireLetter) letter(l *Letter) error {
	text, err := ecma.Stringify(w.Blob)
	blob, isString := ecma.Unquote(text)
	if err != nil || !isString || !parseHex(l.From[:], w.Sender) {
		return errAnswer
	}
	l.Blob, l.Stored, l.ID = string(blob), time.UnixMilli(w.Timestamp), w.ID
	return nil
}
