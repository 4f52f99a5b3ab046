package relay

import (
	"errors"
	"fmt"
	"time"

	"github.com/sotto-relay/sotto/transport"
)

// A Code says why something was refused. Numbers and names are those of spec
// "native"; each dialect maps them to what its wire has.
type Code uint16

// Codes.
const (
	CodeNone Code = iota
	CodeMalformed
	CodeUnsupportedVersion
	CodeNotAuthenticated
	CodeBadSignature
	CodeSpoofedSender
	CodeTooLarge
	CodeRateLimited
	CodeOverloaded
	CodeQuota
	CodeInboxFull
	CodeStorageFull
	CodeNotHere
	CodeNotInRoom
	CodeInvalidTopic
	CodeInvalidFilter
	CodeRetainedFull
	CodeDenied
	CodeReplaced
	CodeGoingAway
	CodeHopLimit
	CodeNotFound
	CodeUnknownVerb
	CodeExpired
	CodeInternal
)

var codeNames = [...]string{
	CodeNone: "none", CodeMalformed: "malformed", CodeUnsupportedVersion: "unsupported-version",
	CodeNotAuthenticated: "not-authenticated", CodeBadSignature: "bad-signature",
	CodeSpoofedSender: "spoofed-sender", CodeTooLarge: "too-large", CodeRateLimited: "rate-limited",
	CodeOverloaded: "overloaded", CodeQuota: "quota", CodeInboxFull: "inbox-full",
	CodeStorageFull: "storage-full", CodeNotHere: "not-here", CodeNotInRoom: "not-in-room",
	CodeInvalidTopic: "invalid-topic", CodeInvalidFilter: "invalid-filter",
	CodeRetainedFull: "retained-full", CodeDenied: "denied", CodeReplaced: "replaced",
	CodeGoingAway: "going-away", CodeHopLimit: "hop-limit", CodeNotFound: "not-found",
	CodeUnknownVerb: "unknown-verb", CodeExpired: "expired", CodeInternal: "internal",
}

// String returns the name of the code, such as "rate-limited".
func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return fmt.Sprintf("code-%d", uint16(c))
}

// closeCode is the WebSocket close code for a connection ended with c.
func (c Code) closeCode() uint16 {
	switch c {
	case CodeNone:
		return transport.CloseNormal
	case CodeMalformed, CodeUnsupportedVersion:
		return transport.CloseProtocol
	case CodeNotAuthenticated, CodeBadSignature, CodeSpoofedSender, CodeRateLimited, CodeDenied, CodeReplaced:
		return transport.ClosePolicy
	case CodeTooLarge:
		return transport.CloseTooLarge
	case CodeOverloaded, CodeQuota:
		return transport.CloseTryLater
	case CodeGoingAway:
		return transport.CloseGoingAway
	}
	return transport.CloseInternal
}

// A Refusal is an error for a stranger's eyes: a code and a fixed sentence.
// Details belong into Err, which is logged and never sent.
type Refusal struct {
	Code       Code
	Reason     string        // one fixed sentence, at most 123 bytes; empty: the code's name
	Close      uint16        // close code instead of the code's own
	RetryAfter time.Duration // zero: not said
	Err        error         // for the log
}

func (r *Refusal) Error() string {
	if r.Err != nil {
		return fmt.Sprintf("%s: %v", r.Sentence(), r.Err)
	}
	return r.Sentence()
}

// Unwrap returns Err.
func (r *Refusal) Unwrap() error { return r.Err }

// Sentence returns the words that the peer may see.
func (r *Refusal) Sentence() string {
	if r.Reason != "" {
		return r.Reason
	}
	return r.Code.String()
}

func (r *Refusal) closeCode() uint16 {
	if r.Close != 0 {
		return r.Close
	}
	return r.Code.closeCode()
}

// AsRefusal returns err as a Refusal. An error that is none becomes one with
// CodeInternal, so that a stranger learns nothing of it; nil and the end of the
// peer's connection become CodeNone.
func AsRefusal(err error) *Refusal {
	var r *Refusal
	if errors.As(err, &r) {
		if r == nil { // a nil pointer in an error is no nil error
			return &Refusal{Code: CodeInternal}
		}
		return r
	}
	if err == nil || errors.Is(err, errPeerGone) {
		return &Refusal{Code: CodeNone, Reason: "closed", Err: err}
	}
	return &Refusal{Code: CodeInternal, Err: err}
}

// errPeerGone marks the end of a connection that was no decision of ours.
var errPeerGone = errors.New("peer gone")
