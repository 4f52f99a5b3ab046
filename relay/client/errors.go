package client

import (
	"errors"
	"fmt"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
)

// Errors of Send, besides [*RefusedError], the context's, those of package crypto
// for a recipient's key or a content that will not do, those of Config.Store, and
// the reason for which the Client ended, which is ErrClosed after Close.
var (
	// ErrClosed is what every method returns after Close.
	ErrClosed = errors.New("client: closed")

	// ErrTooLarge means that the message makes a frame with a payload of more than
	// 4 MiB, once it is padded and sealed, or a name is too long. Nothing was sent.
	ErrTooLarge = errors.New("client: message too large")

	// ErrLegacySession means that the relay speaks handshake v1 only, and the
	// message has to be sealed, or is not to be stored, which such a relay cannot
	// do. Nothing was sent.
	ErrLegacySession = errors.New("client: not possible with a relay that speaks handshake v1")

	// ErrExpired means that 7 days have passed without the receipt that ends the
	// matter. The message may have arrived, and is not sent again.
	ErrExpired = errors.New("client: no receipt for 7 days")

	// ErrUnread means that the relay had stored the message, and the recipient did
	// not come for it in the time for which relays do.
	ErrUnread = errors.New("client: the message has expired unread")

	// ErrCancelled means that Client.Cancel has taken the message back. It may have
	// arrived.
	ErrCancelled = errors.New("client: message cancelled")

	// ErrEphemeral means that more was asked for with Until than there is for an
	// ephemeral message, which is handed over or refused. Nothing was sent.
	ErrEphemeral = errors.New("client: an ephemeral message is neither stored nor acknowledged")
)

// ErrLater is for a function that Client.Handle calls to return: the letter is
// left to the relay, which brings it again after the next login, and Handle goes
// on. Until then it takes its room in the relay's window of 256 letters and 8 MiB,
// and when there is none left, no other letters come. One that the relay does not
// keep (see the package comment) is lost.
var ErrLater = errors.New("client: left for later")

// A RefusedError means that the relay has refused one message or request, and
// goes on with others. Trying again is for the caller to decide by the code.
type RefusedError struct {
	Code   frame.Code
	Reason string // the relay's words, UTF-8, possibly empty
}

func (e *RefusedError) Error() string {
	if e.Reason == "" || e.Reason == e.Code.String() {
		return "client: refused: " + e.Code.String()
	}
	return fmt.Sprintf("client: refused: %v: %q", e.Code, e.Reason)
}

// A trustError means that the relay's key cannot be looked up or recorded.
type trustError struct{ err error }

func (e *trustError) Error() string { return "client: trust in the relay: " + e.err.Error() }

func (e *trustError) Unwrap() error { return e.err }

// isPermanent says whether connecting again without a change is no use, or does
// harm (spec native.md, "Codes").
func isPermanent(err error) bool {
	var (
		byRelay *brep.RelayError
		byUs    *handshake.Error
		trust   *trustError
	)
	switch {
	case errors.As(err, &byRelay):
		return byRelay.Final()
	case errors.As(err, &byUs): // a message that is none, or no randomness, may pass
		return byUs.Code != frame.CodeMalformed && byUs.Code != frame.CodeInternal
	}
	return errors.As(err, &trust)
}
