package handshake

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// The messages of the handshake are payloads of HANDSHAKE frames (spec brep.md).
//
//	challenge        random 32; sender K_r, or zero from a legacy relay; signature zero
//	answer, v1       challenge 32; sender client key; signature over the payload
//	answer, v2       challenge 32 ‖ nonce 32 ‖ K_r 32 ‖ role u8; sender client key; signature over
//	                 answerLabel ‖ K_r ‖ challenge ‖ nonce ‖ client key ‖ role
//	confirmation, v1 01; signature zero
//	confirmation, v2 02 ‖ features u32; sender K_r; signature over
//	                 confirmLabel ‖ challenge ‖ nonce ‖ client key ‖ K_r ‖ role ‖ features
//
// K_r is the key of the side that made the challenge, "client" the side that
// answers it: on a link between relays each is both, once.
const (
	challengeSize = 32
	nonceSize     = 32
	answerSize    = challengeSize + nonceSize + 32 + 1
	confirmSize   = 1 + 4

	answerLabel  = "sotto handshake v2 client\x00"
	confirmLabel = "sotto handshake v2 relay\x00"
)

// A Role says what the side that answers a challenge is. It is signed.
type Role uint8

const (
	RoleClient   Role = 0
	RoleDialler  Role = 1 // a relay that dialled
	RoleAcceptor Role = 2 // a relay that accepted
)

// FeatureDurable is a feature bit of the confirmation: the relay's inbox is
// durable. Bits that are not known are ignored.
const FeatureDurable uint32 = 1 << 0

// A challenge is the 32 random bytes that start an exchange. It is public once
// it has been sent.
type challenge [challengeSize]byte

// newRandom fills a challenge or nonce from r, or from crypto/rand when r is
// nil. There is no second source.
func newRandom(r io.Reader) (b [32]byte, err error) {
	if r == nil {
		r = rand.Reader
	}
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return b, &Error{frame.CodeInternal, fmt.Errorf("no randomness: %w", err)}
	}
	return b, nil
}

func (c *challenge) frame(relay crypto.PublicKey) *frame.Brep {
	return &frame.Brep{Type: frame.TypeHandshake, Sender: relay, Payload: bytes.Clone(c[:])}
}

// isChallenge tells a challenge from a v1 answer, which has the same length.
func isChallenge(f *frame.Brep) bool {
	return len(f.Payload) == challengeSize && f.Signature == [64]byte{}
}

// openChallenge returns the challenge in f, a relay's first message.
func openChallenge(f *frame.Brep) (challenge, error) {
	if !isChallenge(f) {
		return challenge{}, refuse(frame.CodeMalformed, "the first message is not a challenge")
	}
	return challenge(f.Payload), nil
}

// An exchange is what one v2 answer and its confirmation are bound to.
type exchange struct {
	relay     crypto.PublicKey // who made the challenge, and confirms
	challenge challenge
	nonce     [nonceSize]byte
	client    crypto.PublicKey // who answers
	role      Role             // of client
}

// newExchange begins the answer to a challenge.
func newExchange(id *crypto.Identity, random io.Reader, relay crypto.PublicKey, c challenge, role Role) (*exchange, error) {
	if relay.Check() != nil {
		return nil, refuse(frame.CodeDenied, "the challenge comes with a weak key")
	}
	nonce, err := newRandom(random)
	if err != nil {
		return nil, err
	}
	return &exchange{relay, c, nonce, id.Public(), role}, nil
}

func (x *exchange) signedAnswer() []byte {
	b := []byte(answerLabel)
	b = append(b, x.relay[:]...)
	b = append(b, x.challenge[:]...)
	b = append(b, x.nonce[:]...)
	b = append(b, x.client[:]...)
	return append(b, byte(x.role))
}

func (x *exchange) signedConfirm(features uint32) []byte {
	b := []byte(confirmLabel)
	b = append(b, x.challenge[:]...)
	b = append(b, x.nonce[:]...)
	b = append(b, x.client[:]...)
	b = append(b, x.relay[:]...)
	b = append(b, byte(x.role))
	return binary.BigEndian.AppendUint32(b, features)
}

// answer returns the signed answer of id, which is x.client.
func (x *exchange) answer(id *crypto.Identity) *frame.Brep {
	p := bytes.Clone(x.challenge[:])
	p = append(p, x.nonce[:]...)
	p = append(p, x.relay[:]...)
	p = append(p, byte(x.role))
	return &frame.Brep{
		Type:      frame.TypeHandshake,
		Sender:    x.client,
		Signature: id.Sign(x.signedAnswer()),
		Payload:   p,
	}
}

// openAnswer checks that f is the v2 answer to the challenge c of relay, by a
// peer of the given role, and returns what it is bound to.
func openAnswer(f *frame.Brep, relay crypto.PublicKey, c challenge, role Role) (*exchange, error) {
	if len(f.Payload) != answerSize {
		return nil, refuse(frame.CodeMalformed, "not an answer to the challenge")
	}
	p := f.Payload
	x := &exchange{
		challenge: challenge(p),
		nonce:     [nonceSize]byte(p[challengeSize:]),
		relay:     crypto.PublicKey(p[challengeSize+nonceSize:]),
		client:    f.Sender,
		role:      Role(p[answerSize-1]),
	}
	switch {
	case x.challenge != c:
		return nil, refuse(frame.CodeNotAuthenticated, "the answer is to another challenge")
	case x.relay != relay:
		return nil, refuse(frame.CodeNotAuthenticated, "the answer is for another relay")
	case x.role != role:
		return nil, refuse(frame.CodeNotAuthenticated, "the answer is of another role")
	case crypto.Verify(x.client, x.signedAnswer(), &f.Signature) != nil:
		return nil, refuse(frame.CodeBadSignature, "the answer is not signed by its sender")
	}
	return x, nil
}

// confirm returns the signed confirmation of id, which is x.relay.
func (x *exchange) confirm(id *crypto.Identity, features uint32) *frame.Brep {
	return &frame.Brep{
		Type:      frame.TypeHandshake,
		Sender:    x.relay,
		Signature: id.Sign(x.signedConfirm(features)),
		Payload:   binary.BigEndian.AppendUint32([]byte{2}, features),
	}
}

// openConfirm checks that f confirms our answer and returns the relay's features.
func (x *exchange) openConfirm(f *frame.Brep) (features uint32, err error) {
	switch {
	case isConfirmV1(f):
		return 0, refuse(frame.CodeDenied, "the relay went back to v1 after it announced v2")
	case len(f.Payload) != confirmSize || f.Payload[0] != 2:
		return 0, refuse(frame.CodeMalformed, "not a confirmation")
	case crypto.PublicKey(f.Sender) != x.relay:
		return 0, refuse(frame.CodeNotAuthenticated, "the confirmation is by another relay")
	}
	features = binary.BigEndian.Uint32(f.Payload[1:])
	if crypto.Verify(x.relay, x.signedConfirm(features), &f.Signature) != nil {
		return 0, refuse(frame.CodeBadSignature, "the confirmation is not signed by the relay")
	}
	return features, nil
}

func isConfirmV1(f *frame.Brep) bool { return len(f.Payload) == 1 && f.Payload[0] == 1 }

// checkTurn refuses what is not of the handshake at all, and everything after its
// end.
func checkTurn(f *frame.Brep, done bool) error {
	switch {
	case done:
		return refuse(frame.CodeDenied, "the handshake is over")
	case f.Type != frame.TypeHandshake:
		return refuse(frame.CodeNotAuthenticated, "not a handshake message, before the handshake is finished")
	}
	return nil
}

// checkExpected refuses a relay that has another key than it should have.
func checkExpected(want *crypto.PublicKey, got crypto.PublicKey) error {
	if want != nil && *want != got {
		return &Error{frame.CodeDenied, &KeyMismatchError{Want: *want, Got: got}}
	}
	return nil
}
