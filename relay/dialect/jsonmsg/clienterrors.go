package jsonmsg

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sotto-relay/sotto/crypto"
)

// A Reason is what a relay says is wrong, in its own words. Those of spec json.md
// are here; `invalid field: …` names the field. It is an error so that errors.Is
// finds it in a *[RelayError].
type Reason string

// Reasons.
const (
	ErrInvalidJSON    Reason = "invalid JSON"
	ErrUnknownType    Reason = "unknown type"
	ErrTooLarge       Reason = "message too large"
	ErrBinary         Reason = "binary message"
	ErrNotRegistered  Reason = "not registered"
	ErrRateLimited    Reason = "rate limit exceeded"
	ErrNoAddress      Reason = "addr or pubkey required"
	ErrInvalidAddr    Reason = "invalid addr"
	ErrInvalidPubkey  Reason = "invalid pubkey"
	ErrAliasBound     Reason = "alias bound to a different key"
	ErrNeedsKey       Reason = "address needs its public key"
	ErrAddressInUse   Reason = "address in use"
	ErrTakenOver      Reason = "address taken over by a new connection"
	ErrProofFailed    Reason = "proof failed"
	ErrOverloaded     Reason = "relay overloaded, retry later"
	ErrNotInRoom      Reason = "not in room"
	ErrInvalidRoom    Reason = "invalid room"
	ErrRoomFull       Reason = "room full"
	ErrTooManyRooms   Reason = "too many rooms"
	ErrInvalidGame    Reason = "invalid game"
	ErrTooManyGames   Reason = "too many games"
	ErrInvalidTopic   Reason = "invalid topic"
	ErrInvalidFilter  Reason = "invalid topic filter"
	ErrTooManyFilters Reason = "too many subscriptions"
	ErrRetainedFull   Reason = "retained store full"
	ErrStorageFull    Reason = "storage full"
)

// Error returns the words, quoted, as they are a stranger's.
func (r Reason) Error() string { return fmt.Sprintf("%.200q", string(r)) }

// A RelayError is an error that the relay has answered with. It is also an event,
// for a message that nothing waits for the end of: one that was sent, or none in
// particular. It wraps its Reason.
type RelayError struct {
	Reason Reason
	ID     string // of the message that it is about; empty: that had none, or there is none
}

func (e *RelayError) Error() string { return "json: the relay says " + e.Reason.Error() }

// Unwrap returns the Reason.
func (e *RelayError) Unwrap() error { return e.Reason }

// Errors of this package's own, besides those of package crypto for a key that
// will not do, and transport.ErrTooLarge for a message that is longer than
// ClientOptions.MessageBytes.
var (
	// ErrNoKey means that no key of the peer is known: he has not answered yet.
	ErrNoKey = errors.New("json: the peer's key is not known")

	// ErrMatchCancelled is returned by FindMatch after CancelMatch.
	ErrMatchCancelled = errors.New("json: cancelled")

	// ErrUntaken is what waiting for an answer ends with when nobody has taken an
	// event for 10 s and so many are waiting that the Client has stopped reading.
	ErrUntaken = errors.New("json: events are not taken, so that no answers are read")

	// ErrText means that a name or a text is not UTF-8, which JSON is. Nothing was
	// sent.
	ErrText = errors.New("json: not UTF-8")

	errMatching  = errors.New("json: a match for this game is being looked for already")
	errNotJSON   = errors.New("json: the relay sent what is no message")
	errSilent    = errors.New("json: the relay does not answer any more")
	errChallenge = errors.New("json: the relay's challenge is not one for us")
)

// A KeyChangedError means that a peer has another key than the one pinned. Either
// it has a new one, or somebody is in between. Ask it by another way, and have the
// store forget the old one.
type KeyChangedError struct {
	Peer        string
	Pinned, Got crypto.X25519Key
}

func (e *KeyChangedError) Error() string {
	return fmt.Sprintf("json: the key of %q is %v, and %v is pinned", e.Peer, e.Got, e.Pinned)
}

// A ForeignKeyError means that an address that is the hash of a key came with
// another key: somebody is in between.
type ForeignKeyError struct {
	Peer string
	Got  crypto.X25519Key
}

func (e *ForeignKeyError) Error() string {
	return fmt.Sprintf("json: %q is not the address of the key %v", e.Peer, e.Got)
}

// A refusedError ends an attempt to register.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// passing are the reasons for which another attempt to register is worth making.
var passing = []Reason{ErrOverloaded, ErrRateLimited, ErrAddressInUse, ErrStorageFull}

// isFinal says whether registering again without a change is no use, or does harm:
// as taking back an address that somebody has taken over.
func isFinal(err error) bool {
	var refused *refusedError
	if errors.As(err, &refused) {
		return !slices.ContainsFunc(passing, func(r Reason) bool { return errors.Is(err, r) })
	}
	return errors.Is(err, ErrTakenOver) || errors.Is(err, ErrProofFailed)
}
