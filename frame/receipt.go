package frame

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"
)

// A ReceiptStatus says how far a message has come.
type ReceiptStatus uint8

// Statuses of a RECEIPT (spec native.md, "Delivery"), and what follows the byte.
// All but ReceiptAcknowledged are the relay's word and prove nothing.
const (
	ReceiptHandedOver   ReceiptStatus = 1 // to a live session; nothing follows
	ReceiptStored       ReceiptStatus = 2 // nothing follows
	ReceiptAcknowledged ReceiptStatus = 3 // by the recipient; its key 32 ‖ its signature 64
	ReceiptRefused      ReceiptStatus = 4 // code u16 ‖ reason UTF-8
	ReceiptExpired      ReceiptStatus = 5 // unread; code u16 ‖ reason UTF-8
)

// A Receipt is the payload of a RECEIPT frame: id 16 ‖ status u8 ‖ what the
// status says. Fields that its status does not have are zero.
type Receipt struct {
	ID        [16]byte // of the message
	Status    ReceiptStatus
	Recipient [32]byte // ReceiptAcknowledged: Ed25519 public key, not checked
	Signature [64]byte // ReceiptAcknowledged: by Recipient over "sotto ack v1\x00" ‖ sender ‖ id, not checked
	Code      Code     // ReceiptRefused, ReceiptExpired
	Reason    string   // ReceiptRefused, ReceiptExpired: a fixed sentence, UTF-8
}

const receiptHead = 16 + 1

var (
	errReceiptLength = malformed("RECEIPT is longer or shorter than its status")
	errReceiptStatus = malformed("unknown RECEIPT status")
	errReceiptReason = malformed("reason of a RECEIPT is not UTF-8")
)

// Append appends the encoded payload to dst and returns the extended slice. What
// is not UTF-8 in the reason is replaced by U+FFFD. Nothing follows a status that
// is not listed above.
func (r *Receipt) Append(dst []byte) []byte {
	dst = append(dst, r.ID[:]...)
	dst = append(dst, byte(r.Status))
	switch r.Status {
	case ReceiptAcknowledged:
		dst = append(dst, r.Recipient[:]...)
		dst = append(dst, r.Signature[:]...)
	case ReceiptRefused, ReceiptExpired:
		dst = binary.BigEndian.AppendUint16(dst, uint16(r.Code))
		dst = append(dst, strings.ToValidUTF8(r.Reason, "\uFFFD")...)
	}
	return dst
}

// DecodeReceipt decodes the payload of a RECEIPT frame, which it does not alias.
// An unknown status, a length that is not the status's and a reason that is not
// UTF-8 are ErrMalformed.
func DecodeReceipt(b []byte) (Receipt, error) {
	if len(b) < receiptHead {
		return Receipt{}, errReceiptLength
	}
	r := Receipt{ID: [16]byte(b), Status: ReceiptStatus(b[16])}
	b = b[receiptHead:]
	switch r.Status {
	case ReceiptHandedOver, ReceiptStored:
		if len(b) != 0 {
			return Receipt{}, errReceiptLength
		}
	case ReceiptAcknowledged:
		if len(b) != 32+64 {
			return Receipt{}, errReceiptLength
		}
		r.Recipient, r.Signature = [32]byte(b), [64]byte(b[32:])
	case ReceiptRefused, ReceiptExpired:
		switch {
		case len(b) < 2:
			return Receipt{}, errReceiptLength
		case !utf8.Valid(b[2:]):
			return Receipt{}, errReceiptReason
		}
		r.Code, r.Reason = Code(binary.BigEndian.Uint16(b)), string(b[2:])
	default:
		return Receipt{}, errReceiptStatus
	}
	return r, nil
}
