package mailbox

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay"
)

// A proof is what a request shows: a key and a signature by it. Of those that are
// not for storing, a timestamp or a nonce counts once.
type proof struct {
	key    crypto.PublicKey
	signed []byte
	sig    [64]byte
	stamp  time.Time // zero: none, as with a blob that is signed itself
	nonce  []byte    // nil: none, and so the timestamp counts once
}

const (
	scheme      = "Sotto "
	headerLabel = "sotto mailbox v2\x00"
	nonceSize   = 16
)

var (
	errSignature = refuse(http.StatusUnauthorized, "the signature does not verify")
	errStamp     = refuse(http.StatusUnauthorized, "the timestamp is too far from the relay's clock")
	errUsed      = refuse(http.StatusUnauthorized, "this request has been answered before")
	errNoKey     = refuse(http.StatusUnauthorized, "this relay takes no requests that are signed in a header")
	errContact   = refuse(http.StatusForbidden, "not a contact of this relay")
)

// check checks a proof in the order of spec mailbox.md.
func (h *handler) check(ctx context.Context, p *proof) error {
	if !p.stamp.IsZero() && time.Since(p.stamp).Abs() > h.Window {
		return errStamp
	}
	if crypto.Verify(p.key, p.signed, &p.sig) != nil {
		return errSignature
	}
	return h.checkContact(ctx, p.key, errContact)
}

func (h *handler) checkContact(ctx context.Context, key crypto.PublicKey, unknown *refusal) error {
	known, err := h.contacts.Known(ctx, key)
	switch {
	case err != nil:
		return failed(err)
	case !known:
		return unknown
	}
	return nil
}

// id identifies what counts once: of the key, the nonce, or else the timestamp, which
// has another length.
func (p *proof) id() relay.ID {
	once := p.nonce
	if once == nil {
		once = binary.BigEndian.AppendUint64(nil, uint64(p.stamp.UnixMilli()))
	}
	h := sha256.New()
	h.Write(p.key[:])
	h.Write(once)
	return relay.ID(h.Sum(nil))
}

// begin has a proof to itself until end is called, if it has not been used. A
// request that is the same waits meanwhile. A nonce is used up at once; a
// timestamp once use is called.
func (h *handler) begin(ctx context.Context, p *proof) (end func(), err error) {
	id := p.id()
	if err := h.turn(ctx, p.key, id); err != nil {
		return nil, err
	}
	end = func() { h.busy.unlock(id) }
	used, count, err := h.used.has(ctx, p.key, id)
	switch {
	case err != nil:
		err = failed(err)
	case used:
		err = errUsed
	case count >= h.PerKey:
		err = later(http.StatusTooManyRequests, "too many requests of this key", time.Minute)
	case p.nonce != nil:
		err = h.use(ctx, p)
	}
	if err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// turn waits until no other request has a proof to itself. That takes as long as a
// long poll, and counts as one.
func (h *handler) turn(ctx context.Context, key crypto.PublicKey, id relay.ID) error {
	if h.busy.tryLock(id) {
		return nil
	}
	leave, err := h.wait(key)
	if err != nil {
		return err
	}
	defer leave()
	if err := h.busy.lock(ctx, id); err != nil {
		return failed(err)
	}
	return nil
}

// use has a proof count as used.
func (h *handler) use(ctx context.Context, p *proof) error {
	if err := h.used.add(ctx, p.key, p.stamp.Add(h.Window), p.id()); err != nil {
		return failed(err)
	}
	return nil
}

// signedHere says whether a request is signed in its header.
func signedHere(r *http.Request) bool {
	a := r.Header.Get("Authorization")
	return len(a) >= len(scheme) && strings.EqualFold(a[:len(scheme)], scheme) // as RFC 9110 has it
}

// fromHeader returns the proof in the header of a request. Its target is what the
// client has sent, whatever the mux has made of the path.
func (h *handler) fromHeader(r *http.Request, body []byte) (*proof, error) {
	fields := make(map[string]string, 4)
	for field := range strings.SplitSeq(r.Header.Get("Authorization")[len(scheme):], ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		if _, twice := fields[name]; twice {
			return nil, malformed("the Authorization header has a field twice")
		}
		fields[name] = value
	}
	p := &proof{nonce: make([]byte, nonceSize)}
	stamp, ok := parseStamp(fields["ts"])
	if !ok || len(fields) != 4 || len(r.Header.Values("Authorization")) != 1 ||
		!parseHex(p.key[:], fields["key"]) || !parseHex(p.sig[:], fields["sig"]) || !parseHex(p.nonce, fields["nonce"]) {
		return nil, malformed("the Authorization header has to be Sotto key=,ts=,nonce=,sig=")
	}
	if h.Relay == nil {
		return nil, errNoKey
	}
	p.stamp = stamp
	p.signed = headerText(*h.Relay, r.Method, r.RequestURI, body, fields["ts"], p.nonce)
	return p, nil
}

// headerText is what the signature in a header covers.
func headerText(relayKey crypto.PublicKey, method, target string, body []byte, stamp string, nonce []byte) []byte {
	sum := sha256.Sum256(body)
	b := []byte(headerLabel)
	for _, part := range [][]byte{relayKey[:], []byte(method), []byte(target), sum[:], []byte(stamp), nonce} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(part)))
		b = append(b, part...)
	}
	return b
}

// queryOf returns the parameters of a request. Those that are known and there more
// than once are refused.
func queryOf(r *http.Request, known ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, malformed("the query cannot be read")
	}
	for _, name := range known {
		if len(q[name]) > 1 {
			return nil, malformed("a parameter is there more than once")
		}
	}
	return q, nil
}

// proofOf returns the proof of a request without a body.
func (h *handler) proofOf(r *http.Request, q url.Values) (*proof, error) {
	if !signedHere(r) {
		return parseProof(q.Get("pubkey"), q.Get("timestamp"), q.Get("signature"), "")
	}
	if q.Has("pubkey") || q.Has("signature") || q.Has("timestamp") {
		return nil, errElsewhere
	}
	return h.fromHeader(r, nil)
}

var errElsewhere = malformed("a request that is signed in its header has no key, timestamp or signature elsewhere")

// parseProof returns the proof of v1: a signature over the key and the timestamp as
// they were written, and suffix.
func parseProof(key, stamp, sig, suffix string) (*proof, error) {
	if key == "" || stamp == "" || sig == "" {
		return nil, malformed("pubkey, timestamp and signature are required")
	}
	var p proof
	var ok bool
	switch p.stamp, ok = parseStamp(stamp); {
	case !parseHex(p.key[:], key):
		return nil, malformed("pubkey is not 64 hex digits")
	case !ok:
		return nil, malformed("timestamp is not in milliseconds, 13 digits")
	case !parseHex(p.sig[:], sig):
		return nil, malformed("signature is not 128 hex digits")
	}
	p.signed = []byte(key + ":" + stamp + suffix)
	return &p, nil
}

// parseStamp reads the 13 digits of a time in Unix milliseconds.
func parseStamp(s string) (time.Time, bool) {
	if len(s) != 13 || strings.Trim(s, "0123456789") != "" {
		return time.Time{}, false
	}
	ms, err := strconv.ParseInt(s, 10, 64)
	return time.UnixMilli(ms), err == nil
}

// parseHex fills dst from exactly as many hex digits as it takes, in either case.
func parseHex[S string | []byte](dst []byte, s S) bool {
	if len(s) != hex.EncodedLen(len(dst)) {
		return false
	}
	_, err := hex.Decode(dst, []byte(s))
	return err == nil
}
