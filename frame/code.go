package frame

import "strconv"

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

// String returns the name of c, as "rate-limited", or "code-N" for a number that
// has none.
func (c Code) String() string {
	switch c {
	case CodeMalformed:
		return "malformed"
	case CodeUnsupportedVersion:
		return "unsupported-version"
	case CodeNotAuthenticated:
		return "not-authenticated"
	case CodeBadSignature:
		return "bad-signature"
	case CodeSpoofedSender:
		return "spoofed-sender"
	case CodeTooLarge:
		return "too-large"
	case CodeRateLimited:
		return "rate-limited"
	case CodeOverloaded:
		return "overloaded"
	case CodeQuota:
		return "quota"
	case CodeInboxFull:
		return "inbox-full"
	case CodeStorageFull:
		return "storage-full"
	case CodeNotHere:
		return "not-here"
	case CodeNotInRoom:
		return "not-in-room"
	case CodeInvalidTopic:
		return "invalid-topic"
	case CodeInvalidFilter:
		return "invalid-filter"
	case CodeRetainedFull:
		return "retained-full"
	case CodeDenied:
		return "denied"
	case CodeReplaced:
		return "replaced"
	case CodeGoingAway:
		return "going-away"
	case CodeHopLimit:
		return "hop-limit"
	case CodeNotFound:
		return "not-found"
	case CodeUnknownVerb:
		return "unknown-verb"
	case CodeExpired:
		return "expired"
	case CodeInternal:
		return "internal"
	}
	return "code-" + strconv.Itoa(int(c))
}
