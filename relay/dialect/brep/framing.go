package brep

import (
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/transport"
)

// Framing cuts a stream into frames, which say themselves how long they are. A
// stream of another protocol is refused at its first byte.
func (Dialect) Framing() transport.Framing { return Framing{} }

// Framing is the [transport.Framing] of frames, for both ends of a stream.
type Framing struct{}

// Next finds the first frame in b (see frame.NextBrep).
func (Framing) Next(b []byte, most int) (skip, n int, err error) { return frame.NextBrep(b, most) }

// Head appends nothing: a frame delimits itself.
func (Framing) Head(dst []byte, _ int) []byte { return dst }
