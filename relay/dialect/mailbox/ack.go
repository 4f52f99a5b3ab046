package mailbox

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/internal/ecma"
	"github.com/sotto-relay/sotto/relay"
)

// The id of a leased blob names it to the relay alone: epoch 8 ‖ number in the
// mailbox u64 ‖ id of the letter 16, in hex. The epoch is that of the process, since
// leases end with it, and numbers may be given again.
const blobIDSize = 8 + 8 + 16

func (h *handler) blobID(b held) string {
	id := append([]byte(nil), h.epoch[:]...)
	id = binary.BigEndian.AppendUint64(id, b.seq)
	id = append(id, b.id[:]...)
	return hex.EncodeToString(id)
}

// parseBlobID reads an id; here is false if it is not of this process.
func (h *handler) parseBlobID(s string) (b held, here, ok bool) {
	var id [blobIDSize]byte
	if !parseHex(id[:], s) {
		return held{}, false, false
	}
	b = held{seq: binary.BigEndian.Uint64(id[8:]), id: relay.ID(id[16:])}
	return b, [8]byte(id[:]) == h.epoch, true
}

// ack answers POST /relay/ack.
func (h *handler) ack(w http.ResponseWriter, r *http.Request) error {
	body, err := h.readBody(w, r, ackBytes)
	if err != nil {
		return err
	}
	defer body.free()
	ids, p, err := h.parseAck(r, body.data)
	if err != nil {
		return err
	}
	var blobs []held
	for _, s := range ids {
		b, here, ok := h.parseBlobID(s)
		switch {
		case !ok:
			return malformed("an id is not one that this relay gives")
		case here:
			blobs = append(blobs, b)
		}
	}
	ctx := r.Context()
	if err := h.check(ctx, p); err != nil {
		return err
	}
	// A timestamp is not used up by this: to acknowledge again changes nothing.
	if p.nonce != nil {
		end, err := h.begin(ctx, p)
		if err != nil {
			return err
		}
		defer end()
	}
	if err := h.remove(ctx, p.key, blobs); err != nil {
		return failed(err)
	}
	h.respond(w, http.StatusOK, message{Status: "ok"})
	return nil
}

// parseAck reads the body of an acknowledgement.
func (h *handler) parseAck(r *http.Request, body []byte) (ids []string, p *proof, err error) {
	m, err := ecma.Members(body, "pubkey", "timestamp", "signature", "ids")
	if err != nil {
		return nil, nil, notJSON(err)
	}
	if json.Unmarshal(m[3], &ids) != nil || ids == nil {
		return nil, nil, malformed("ids is not a list of strings")
	}
	if signedHere(r) {
		if m[0] != nil || m[1] != nil || m[2] != nil {
			return nil, nil, errElsewhere
		}
		p, err = h.fromHeader(r, body)
		return ids, p, err
	}
	key, _ := ecma.Unquote(m[0])
	sig, _ := ecma.Unquote(m[2])
	stamp, isString := ecma.Unquote(m[1])
	if !isString {
		stamp = m[1] // a number
	}
	p, err = parseProof(string(key), string(stamp), string(sig), ackSuffix(ids))
	return ids, p, err
}

// ackSuffix is what the signature of an acknowledgement covers after the key and
// the timestamp.
func ackSuffix(ids []string) string { return ":ack:" + strings.Join(ids, ",") }

// remove removes blobs that have been handed over. For a time they are remembered,
// so that a request to store one of them again is known for a repeat.
func (h *handler) remove(ctx context.Context, to crypto.PublicKey, blobs []held) error {
	if len(blobs) == 0 {
		return nil
	}
	ids := make([]relay.ID, len(blobs))
	seqs := make([]uint64, len(blobs))
	for i, b := range blobs {
		ids[i], seqs[i] = b.id, b.seq
	}
	// In order and each once, so that nobody waits for himself or in a circle.
	slices.SortFunc(ids, func(a, b relay.ID) int { return bytes.Compare(a[:], b[:]) })
	ids = slices.Compact(ids)
	for _, id := range ids {
		if err := h.busy.lock(ctx, id); err != nil {
			return err
		}
		defer h.busy.unlock(id)
	}
	// Before they are gone: or else a repeat could be taken for new in between.
	err := h.removed.add(ctx, to, time.Now().Add(h.Repeats-time.Millisecond), ids...)
	if err != nil {
		h.log.Debug("mailbox: blobs that are removed are not remembered", "err", err) // readers can bring that about
	}
	_, err = h.srv.Remove(ctx, address(to), seqs...)
	return err
}
