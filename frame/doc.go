// Package frame holds codecs of the relay's wire formats.
//
// It is pure: bytes to values and values to bytes, without I/O, clocks,
// randomness, logging or state. It checks layout only. Whether a signature
// verifies, who may send what and when, and how a violation is answered is
// decided by the packages above.
//
// Every function may be called from any goroutine. Values that were decoded
// alias their input where the documentation says so, and are valid as long as
// the input is left alone. Decoding never panics, and never takes memory on the
// word of a length that was not checked against the bytes that are there.
package frame

import (
	"errors"
	"fmt"
)

// Errors that every decoder of this package returns, wrapped with the detail.
// A relay acts on which of them it is and shows the detail to nobody.
var (
	// ErrMalformed means that the bytes are not what the format says.
	ErrMalformed = errors.New("frame: malformed")

	// ErrVersion means that the frame has a version other than 1.
	ErrVersion = errors.New("frame: unsupported version")

	// ErrTooLarge means that a frame announced more than the limit.
	ErrTooLarge = errors.New("frame: too large")
)

func malformed(detail string) error { return fmt.Errorf("%w: %s", ErrMalformed, detail) }
