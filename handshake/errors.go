package handshake

import (
	"errors"
	"fmt"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// Errors of the machines that a caller can act on, besides [*KeyMismatchError].
// They come wrapped in an [*Error].
var (
	// ErrLegacyRelay means that the relay speaks v1 only, or that somebody in
	// between wants it to look so, and v1 was not allowed.
	ErrLegacyRelay = errors.New("the relay speaks handshake v1 only, which is not allowed here")

	// ErrSelf means that the relay at the other end has our own key: the
	// address leads back to ourselves.
	ErrSelf = errors.New("the peer has our own key")
)

// A KeyMismatchError means that a relay has another key than the one pinned or
// seen before.
type KeyMismatchError struct {
	Want, Got crypto.PublicKey
}

func (e *KeyMismatchError) Error() string {
	return fmt.Sprintf("the relay's key is %v, expected %v", e.Got, e.Want)
}

// An Error says why a handshake failed. Its text may name keys, never secrets;
// a peer is shown the Code only.
type Error struct {
	// Code is CodeMalformed for a message that is none of the handshake's,
	// CodeNotAuthenticated for one that proves nothing here (out of turn, or
	// made for another challenge, relay or role), CodeBadSignature, CodeDenied
	// for a peer that is refused whatever it proves and for anything after the
	// end of the handshake, and CodeInternal when randomness failed.
	Code frame.Code
	Err  error
}

func (e *Error) Error() string { return "handshake: " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

func refuse(code frame.Code, reason string) error {
	return &Error{code, errors.New(reason)}
}
