package client

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// A Letter is a message that came in, opened and verified as far as its
// Protection says. It is the application's.
type Letter struct {
	From crypto.PublicKey // who sent it; proved as far as Protection says
	ID   [16]byte         // the sender's, or the relay's for a sender that speaks v1; zero in a legacy session

	Type crypto.ContentType // Raw, Text, JSON or File
	Name string             // of a File: safe to join to a directory, see crypto.SafeFileName
	Data []byte

	Protection Protection
}

// Text returns Data as a string. It is UTF-8 if Type is crypto.Text.
func (l *Letter) Text() string { return string(l.Data) }

// JSON unmarshals Data into v, as encoding/json does.
func (l *Letter) JSON(v any) error { return json.Unmarshal(l.Data, v) }

// A Protection says what the sender did for a message, and so what is known of
// it. The order is that of strength.
type Protection uint8

const (
	// ProtectionClear (DATA): nothing. Relays could read and change it, and that
	// it is by From is the relay's word. Its Type is always Raw.
	ProtectionClear Protection = iota

	// ProtectionUnsigned (SIGNED_DATA of 32 bytes in the old layout): as
	// ProtectionClear. The signature can have been made for a v1 handshake.
	ProtectionUnsigned

	// ProtectionLegacy (SIGNED_DATA in the old layout): From has signed the
	// content, but not for whom. Relays could read it.
	ProtectionLegacy

	// ProtectionSigned (SIGNED_DATA): From has signed the content, for us. Relays
	// could read it.
	ProtectionSigned

	// ProtectionEncrypted (ENCRYPTED_DATA): only we could read it. From has signed
	// the ciphertext, which does not prove to have made it.
	ProtectionEncrypted

	// ProtectionSealed (SEALED): only we could read it, and From has sealed it, for
	// us, under this ID.
	ProtectionSealed
)

// String returns "clear", "unsigned", "legacy", "signed", "encrypted" or "sealed".
func (p Protection) String() string {
	switch p {
	case ProtectionUnsigned:
		return "unsigned"
	case ProtectionLegacy:
		return "legacy"
	case ProtectionSigned:
		return "signed"
	case ProtectionEncrypted:
		return "encrypted"
	case ProtectionSealed:
		return "sealed"
	}
	return "clear"
}

var (
	errRecipient   = errors.New("client: for another recipient")
	errContentType = errors.New("client: unknown content type")
	errUnkept      = errors.New("client: a piece of a file that the relay does not keep")
	errNoRoom      = errors.New("client: too many unread letters for one that the relay does not keep")
)

// An opener makes letters of the frames that carry them.
type opener struct {
	identity *crypto.Identity
	keys     *keyring
}

// isLetter says whether frames of this type carry a letter.
func isLetter(t frame.Type) bool {
	switch t {
	case frame.TypeData, frame.TypeSignedData, frame.TypeEncryptedData, frame.TypeSealed:
		return true
	}
	return false
}

// open returns the letter in a frame for which isLetter holds. It shares nothing
// with the frame.
func (o *opener) open(f *frame.Brep) (*Letter, error) {
	l := &Letter{From: f.Sender, ID: f.ID}
	c, err := o.content(f, l)
	switch {
	case err != nil:
		return nil, err
	case c.Type > crypto.GroupKeys: // those above File are SEALED
		return nil, errContentType
	}
	l.Type, l.Name, l.Data = c.Type, c.Name, c.Data
	return l, nil
}

// content returns what a frame says, and notes how it was protected.
func (o *opener) content(f *frame.Brep, l *Letter) (crypto.Content, error) {
	switch f.Type {
	case frame.TypeSealed:
		l.Protection = ProtectionSealed
		return crypto.OpenSealed(l.From, f.ID, &f.Signature, f.Payload, o.keys.openKeys()...)
	case frame.TypeEncryptedData:
		l.Protection = ProtectionEncrypted
		return crypto.OpenEncrypted(o.identity, l.From, &f.Signature, f.Payload)
	case frame.TypeSignedData:
		payload := bytes.Clone(f.Payload)
		c, trust, err := crypto.OpenSigned(o.identity.Public(), l.From, &f.Signature, payload)
		l.Protection = signedProtection(trust)
		return c, err
	}
	return o.clear(f)
}

func (o *opener) clear(f *frame.Brep) (crypto.Content, error) {
	self := o.identity.Public()
	switch {
	case len(f.Payload) < len(self):
		return crypto.Content{}, crypto.ErrMalformed
	case crypto.PublicKey(f.Payload[:len(self)]) != self:
		return crypto.Content{}, errRecipient
	}
	return crypto.Content{Type: crypto.Raw, Data: bytes.Clone(f.Payload[len(self):])}, nil
}

func signedProtection(t crypto.Trust) Protection {
	switch t {
	case crypto.Verified:
		return ProtectionSigned
	case crypto.Legacy:
		return ProtectionLegacy
	}
	return ProtectionUnsigned
}
