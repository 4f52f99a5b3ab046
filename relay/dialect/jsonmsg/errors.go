package jsonmsg

import (
	"errors"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// What a peer is told (spec json.md, "Every message"). None is changed.
var (
	errInvalidJSON   = &relay.Refusal{Code: relay.CodeMalformed, Reason: "invalid JSON"}
	errUnknownType   = &relay.Refusal{Code: relay.CodeUnknownVerb, Reason: "unknown type"}
	errBinary        = &relay.Refusal{Code: relay.CodeMalformed, Reason: "binary message"}
	errNotRegistered = &relay.Refusal{Code: relay.CodeNotAuthenticated, Reason: "not registered"}
	errNeither       = &relay.Refusal{Code: relay.CodeMalformed, Reason: "addr or pubkey required"}
	errInvalidAddr   = &relay.Refusal{Code: relay.CodeMalformed, Reason: "invalid addr"}
	errInvalidPubkey = &relay.Refusal{Code: relay.CodeMalformed, Reason: "invalid pubkey"}
	errBound         = &relay.Refusal{Code: relay.CodeDenied, Reason: "alias bound to a different key"}
	errNeedsKey      = &relay.Refusal{Code: relay.CodeDenied, Reason: "address needs its public key"}
	errProof         = &relay.Refusal{Code: relay.CodeBadSignature, Reason: "proof failed"}
	errProofEnds     = &relay.Refusal{Code: relay.CodeBadSignature, Reason: "proof failed", Close: transport.ClosePolicy}
	errNotInRoom     = &relay.Refusal{Code: relay.CodeNotInRoom, Reason: "not in room"}
	errInvalidRoom   = &relay.Refusal{Code: relay.CodeMalformed, Reason: "invalid room"}
	errRoomFull      = &relay.Refusal{Code: relay.CodeQuota, Reason: "room full"}
	errRooms         = &relay.Refusal{Code: relay.CodeQuota, Reason: "too many rooms"}
	errInvalidGame   = &relay.Refusal{Code: relay.CodeMalformed, Reason: "invalid game"}
	errGames         = &relay.Refusal{Code: relay.CodeQuota, Reason: "too many games"}
	errSubscriptions = &relay.Refusal{Code: relay.CodeQuota, Reason: "too many subscriptions"}
	errStorageFull   = &relay.Refusal{Code: relay.CodeStorageFull}
	errOverloaded    = &relay.Refusal{Code: relay.CodeOverloaded}
)

// A fieldError names a field that is missing or has the wrong type.
type fieldError string

func (e fieldError) Error() string { return "invalid field: " + string(e) }

// textOf returns the words for an error, which are fixed ones.
func textOf(err error) string {
	var field fieldError
	if errors.As(err, &field) {
		return field.Error()
	}
	return textOfRefusal(relay.AsRefusal(err))
}

func textOfRefusal(r *relay.Refusal) string {
	switch r.Code {
	case relay.CodeTooLarge:
		return "message too large"
	case relay.CodeRateLimited:
		return "rate limit exceeded"
	case relay.CodeOverloaded:
		return "relay overloaded, retry later"
	case relay.CodeReplaced:
		return "address taken over by a new connection"
	case relay.CodeInvalidTopic:
		return "invalid topic"
	case relay.CodeInvalidFilter:
		return "invalid topic filter"
	case relay.CodeRetainedFull:
		return "retained store full"
	case relay.CodeStorageFull, relay.CodeInboxFull, relay.CodeNotHere:
		return "storage full" // not here: nothing can be stored at all
	}
	return r.Sentence()
}

// instead returns the error that the dialect has for a refusal with CodeQuota.
func instead(err error, quota *relay.Refusal) error {
	if err != nil && relay.AsRefusal(err).Code == relay.CodeQuota {
		return quota
	}
	return err
}
