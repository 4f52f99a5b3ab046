package frame

import (
	"slices"
	"strconv"
)

// A Code says why something was refused. It is a u16 on the wire of the brep
// dialect and a name elsewhere; number and name stand for one another for good
// (spec native.md, "Codes").
type Code uint16

// Codes. Zero stands for none.
const (
	CodeMalformed          Code = 1
	CodeUnsupportedVersion Code = 2
	CodeNotAuthenticated   Code = 3
	CodeBadSignature       Code = 4
	CodeSpoofedSender      Code = 5
	CodeTooLarge           Code = 6
	CodeRateLimited        Code = 7
	CodeOverloaded         Code = 8
	CodeQuota              Code = 9
	CodeInboxFull          Code = 10
	CodeStorageFull        Code = 11
	CodeNotHere            Code = 12
	CodeNotInRoom          Code = 13
	CodeInvalidTopic       Code = 14
	CodeInvalidFilter      Code = 15
	CodeRetainedFull       Code = 16
	CodeDenied             Code = 17
	CodeReplaced           Code = 18
	CodeGoingAway          Code = 19
	CodeHopLimit           Code = 20
	CodeNotFound           Code = 21
	CodeUnknownVerb        Code = 22
	CodeExpired            Code = 23
	CodeInternal           Code = 24
)

var codeNames = [...]string{
	CodeMalformed:          "malformed",
	CodeUnsupportedVersion: "unsupported-version",
	CodeNotAuthenticated:   "not-authenticated",
	CodeBadSignature:       "bad-signature",
	CodeSpoofedSender:      "spoofed-sender",
	CodeTooLarge:           "too-large",
	CodeRateLimited:        "rate-limited",
	CodeOverloaded:         "overloaded",
	CodeQuota:              "quota",
	CodeInboxFull:          "inbox-full",
	CodeStorageFull:        "storage-full",
	CodeNotHere:            "not-here",
	CodeNotInRoom:          "not-in-room",
	CodeInvalidTopic:       "invalid-topic",
	CodeInvalidFilter:      "invalid-filter",
	CodeRetainedFull:       "retained-full",
	CodeDenied:             "denied",
	CodeReplaced:           "replaced",
	CodeGoingAway:          "going-away",
	CodeHopLimit:           "hop-limit",
	CodeNotFound:           "not-found",
	CodeUnknownVerb:        "unknown-verb",
	CodeExpired:            "expired",
	CodeInternal:           "internal",
}

// String returns the name of c, as "rate-limited", or "code-N" for a number that
// has none.
func (c Code) String() string {
	if 0 < c && int(c) < len(codeNames) {
		return codeNames[c]
	}
	return "code-" + strconv.Itoa(int(c))
}

// CodeOf returns the code with a name, zero if there is none.
func CodeOf(name string) Code {
	return Code(max(0, slices.Index(codeNames[:], name)))
}
