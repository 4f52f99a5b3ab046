package mailbox

import (
	"crypto/sha256"
	"errors"
	"net/http"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/internal/ecma"
	"github.com/sotto-relay/sotto/relay"
)

// A letter is what a request to store asks for.
type letter struct {
	from, to crypto.PublicKey
	blob     []byte // in WTF-8 (package ecma)
}

// id identifies a letter: the same blob of the same sender for the same recipient
// is the same letter.
func (l *letter) id() relay.ID {
	h := sha256.New()
	h.Write(l.from[:])
	h.Write(l.to[:])
	h.Write(l.blob)
	return relay.ID(h.Sum(nil))
}

var errRecipient = refuse(http.StatusForbidden, "the recipient is not a contact of this relay")

// store answers POST /relay/store.
func (h *handler) store(w http.ResponseWriter, r *http.Request) error {
	b, err := h.readBody(w, r, escapeFactor*int64(h.limits.MessageBytes)+bodyOverhead)
	if err != nil {
		return err
	}
	defer b.free()
	l, p, err := h.parseStore(r, b.data)
	if err != nil {
		return err
	}
	ctx := r.Context()
	if err := h.check(ctx, p); err != nil {
		return err
	}
	if h.Strict {
		if err := h.checkContact(ctx, l.to, errRecipient); err != nil {
			return err
		}
	}
	if p.nonce != nil {
		end, err := h.begin(ctx, p)
		if err != nil {
			return err
		}
		defer end()
	}
	id := l.id()
	// While this blob is being stored it is not being removed: or else a repeat
	// could find it neither pending nor removed.
	if err := h.busy.lock(ctx, id); err != nil {
		return failed(err)
	}
	defer h.busy.unlock(id)
	switch repeat, _, err := h.removed.has(ctx, l.to, id); {
	case err != nil:
		return failed(err)
	case !repeat:
		if err := h.deliver(r, l, id); err != nil {
			return err
		}
	}
	h.respond(w, http.StatusOK, message{
		Status:  "stored",
		Expires: time.Now().Add(h.limits.InboxTTL).UTC().Format("2006-01-02T15:04:05.000Z"),
	})
	return nil
}

func (h *handler) deliver(r *http.Request, l *letter, id relay.ID) error {
	o, err := h.srv.Deliver(r.Context(), Dialect{}, &relay.Message{
		To: address(l.to), From: address(l.from), ID: id, Data: l.blob,
	})
	switch {
	case o.Status == relay.Refused:
		return refusalOf(o.Code)
	case err != nil:
		return failed(err)
	}
	return nil
}

// parseStore reads the body of a request to store.
func (h *handler) parseStore(r *http.Request, body []byte) (*letter, *proof, error) {
	m, err := ecma.Members(body, "recipient", "blob", "signature", "senderPubkey")
	if err != nil {
		return nil, nil, notJSON(err)
	}
	recipient, blob, signature, sender := m[0], m[1], m[2], m[3]
	inHeader := signedHere(r)
	switch {
	case inHeader && (signature != nil || sender != nil):
		return nil, nil, errElsewhere
	case isEmpty(recipient) || isEmpty(blob) || !inHeader && (isEmpty(signature) || isEmpty(sender)):
		return nil, nil, malformed("recipient, blob, signature and senderPubkey are required")
	}
	l := new(letter)
	if !parseHexString(l.to[:], recipient) {
		return nil, nil, malformed("recipient is not 64 hex digits")
	}
	var p *proof
	if inHeader {
		if p, err = h.fromHeader(r, body); err != nil {
			return nil, nil, err
		}
	} else {
		p = new(proof)
		switch {
		case !parseHexString(p.key[:], sender):
			return nil, nil, malformed("senderPubkey is not 64 hex digits")
		case !parseHexString(p.sig[:], signature):
			return nil, nil, malformed("signature is not 128 hex digits")
		}
	}
	l.from = p.key
	var isString bool
	if l.blob, isString = ecma.Unquote(blob); !isString {
		l.blob = blob
	}
	if len(l.blob) > h.limits.MessageBytes {
		return nil, nil, refuse(http.StatusRequestEntityTooLarge, "the blob is too large")
	}
	if !inHeader {
		p.signed = storeText(recipient, blob)
	}
	return l, p, nil
}

// storeText returns what the signature of version 1 covers: what JSON.stringify
// writes for {recipient, blob}, whose values are given as it writes them.
func storeText(recipient, blob []byte) []byte {
	b := make([]byte, 0, len(`{"recipient":,"blob":}`)+len(recipient)+len(blob))
	b = append(b, `{"recipient":`...)
	b = append(b, recipient...)
	b = append(b, `,"blob":`...)
	b = append(b, blob...)
	return append(b, '}')
}

func notJSON(err error) error {
	switch {
	case errors.Is(err, ecma.ErrKind):
		return malformed("the body is not an object")
	case errors.Is(err, ecma.ErrDepth):
		return malformed("the body is nested too deep")
	}
	return malformed("the body is not JSON in UTF-8")
}

// isEmpty says whether a value is missing or counts as such.
func isEmpty(value []byte) bool {
	switch string(value) {
	case "", `""`, "0", "false", "null":
		return true
	}
	return false
}

// parseHexString is parseHex of a value that is a string.
func parseHexString(dst, value []byte) bool {
	s, ok := ecma.Unquote(value)
	return ok && parseHex(dst, s)
}
