package crypto

import (
	"encoding/binary"
	"math"
	"time"
)

// An attachment (mesh.md "Attachment") is a relay's key (32), a client's key (32),
// not-after (8, big-endian, milliseconds since 1970), and the client's signature
// (64) over a label and all of that.
const (
	attachLabel  = "sotto attach v1\x00"
	attachSigned = 32 + 32 + 8

	// AttachmentSize is the length of an attachment in bytes.
	AttachmentSize = attachSigned + 64
)

// An Attachment is a client's word that it is connected to a relay.
type Attachment struct {
	Relay, Client PublicKey
	NotAfter      time.Time // to the millisecond
}

// Attach returns an attachment of a client's, encoded and signed.
func Attach(client *Identity, relay PublicKey, notAfter time.Time) [AttachmentSize]byte {
	b := make([]byte, 0, AttachmentSize)
	b = append(b, relay[:]...)
	b = append(b, client.public[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(notAfter.UnixMilli()))
	sig := client.Sign(append([]byte(attachLabel), b...))
	return [AttachmentSize]byte(append(b, sig[:]...))
}

// ParseAttachment reads an attachment and verifies that its client signed it.
// Whether its time is past, or too far ahead, is for the caller. A wrong length or
// a time that is none is [ErrMalformed], a weak client's key [ErrWeakKey], and a
// wrong signature [ErrSignature].
func ParseAttachment(b []byte) (Attachment, error) {
	if len(b) != AttachmentSize {
		return Attachment{}, ErrMalformed
	}
	ms := binary.BigEndian.Uint64(b[64:])
	if ms > math.MaxInt64 {
		return Attachment{}, ErrMalformed
	}
	a := Attachment{PublicKey(b), PublicKey(b[32:]), time.UnixMilli(int64(ms))}
	toSign := append([]byte(attachLabel), b[:attachSigned]...)
	if err := Verify(a.Client, toSign, (*[64]byte)(b[attachSigned:])); err != nil {
		return Attachment{}, err
	}
	return a, nil
}
