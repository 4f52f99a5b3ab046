package brep

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/transport"
)

// A RelayError is what the relay said when it ended the connection or refused
// the login: in an ERROR frame, or with a close code. It is the relay's word.
type RelayError struct {
	// Code is exact in an extended session. A legacy one has a close code only,
	// and Code is then what the reason names, or else one that the close code may
	// stand for: CodeDenied for 1008.
	Code   frame.Code
	Reason string // a sentence, at most 123 bytes of UTF-8, possibly empty

	// RetryAfter is when a relay that goes away asks its clients to come back, each
	// at a time of its own; zero: it did not say.
	RetryAfter time.Duration

	// Other is the address of another relay that a relay that goes away names, of any
	// length and content; empty for none. It is a hint: followed only to an address
	// that one was configured with.
	Other string
}

func (e *RelayError) Error() string {
	if e.Reason == "" || e.Reason == e.Code.String() {
		return "brep: the relay refuses: " + e.Code.String()
	}
	return fmt.Sprintf("brep: the relay refuses: %v: %q", e.Code, e.Reason)
}

// Final says that connecting again without a change is no use or does harm: the
// login was refused, or a newer one of the same key has replaced this one (spec
// native.md, "Codes").
func (e *RelayError) Final() bool {
	switch e.Code {
	case frame.CodeNotAuthenticated, frame.CodeBadSignature, frame.CodeSpoofedSender,
		frame.CodeDenied, frame.CodeReplaced:
		return true
	}
	return false
}

const maxReason = 123 // as in a close frame

// sessionError returns what an ERROR or a GOAWAY says about the session; nil for
// other frames and for what is about a frame of ours, by its id.
func sessionError(f *frame.Brep) *RelayError {
	if f.Type == frame.TypeGoAway {
		away, err := frame.DecodeGoAway(f.Payload)
		if err != nil {
			return nil
		}
		return &RelayError{Code: frame.CodeGoingAway, RetryAfter: away.After, Other: away.Address}
	}
	if f.Type != frame.TypeError {
		return nil
	}
	e, err := frame.DecodeError(f.Flags, f.Payload)
	if err != nil || e.ID != [16]byte{} {
		return nil
	}
	reason := e.Sentence[:min(len(e.Sentence), maxReason)]
	return &RelayError{Code: e.Code, Reason: strings.ToValidUTF8(reason, "")}
}

// lastWords returns the reason for the end of a connection that reading failed
// with: what the last frame said, else the close code, else the error itself.
func lastWords(last *RelayError, err error) error {
	if last != nil {
		return last
	}
	var ce *transport.CloseError
	if errors.As(err, &ce) {
		if code, ok := codeOfClose(ce); ok {
			return &RelayError{Code: code, Reason: ce.Reason}
		}
	}
	return fmt.Errorf("brep: connection lost: %w", err)
}

// codeOfClose returns the code that the reason of a close names, else one that
// fits its close code.
func codeOfClose(ce *transport.CloseError) (frame.Code, bool) {
	if c := frame.CodeOf(ce.Reason); c != 0 {
		return c, true
	}
	switch ce.Code {
	case transport.CloseProtocol, transport.CloseUnsupported, transport.CloseInvalidUTF8:
		return frame.CodeMalformed, true
	case transport.ClosePolicy:
		return frame.CodeDenied, true
	case transport.CloseTooLarge:
		return frame.CodeTooLarge, true
	case transport.CloseGoingAway:
		return frame.CodeGoingAway, true
	case transport.CloseTryLater:
		return frame.CodeOverloaded, true
	case transport.CloseInternal:
		return frame.CodeInternal, true
	}
	return 0, false
}

// closeCode is what a client closes the connection with because of err.
func closeCode(err error) uint16 {
	var he *handshake.Error
	switch {
	case errors.As(err, &he) && he.Code != frame.CodeMalformed:
		return transport.ClosePolicy
	case errors.As(err, &he), errors.Is(err, frame.ErrMalformed), errors.Is(err, frame.ErrVersion),
		errors.Is(err, errHandshakeAgain), errors.Is(err, errNotLegacy):
		return transport.CloseProtocol
	case errors.Is(err, errText):
		return transport.CloseUnsupported
	}
	return transport.CloseNormal
}
