package ws

import (
	"time"
	"unicode/utf8"

	"github.com/sotto-relay/sotto/internal/stream"
	"github.com/sotto-relay/sotto/transport"
)

const (
	// maxFragments bounds the frames of one message, and maxControls the control
	// frames within a second: both cost the peer next to nothing to send.
	maxFragments = 1 << 14
	maxControls  = 100
)

// A reader puts messages together from what fill reads. All its state is in its
// fields, so that after an error of fill (a deadline) reading can go on.
type reader struct {
	masked  bool // frames must be masked: we are the server
	limit   int
	fill    func() error                            // reads more than nothing into B[W:], or fails
	control func(opcode byte, payload []byte) error // handles a ping, pong or close

	stream.Buffer

	// The frame that is being read.
	inFrame bool
	frame   head
	left    int // bytes of it to come
	pos     int // bytes of it consumed

	// The message that is being read, if it is fragmented or longer than B.
	inMessage bool
	kind      transport.Kind
	fragments int
	size      int  // announced so far
	skip      bool // over the limit
	lost      bool // over four times the limit
	msg       *[]byte
	pools     *stream.Pools

	controls int       // since
	since    time.Time // the beginning of a second
}

// partial says whether something has begun that its peer owes the rest of.
func (d *reader) partial() bool { return d.R < d.W || d.inFrame || d.inMessage }

// next returns the next message, which is valid until the next call. An error
// that is a *transport.CloseError says how to close the connection.
func (d *reader) next() (transport.Kind, []byte, error) {
	if !d.inMessage {
		d.releaseMessage()
	}
	for {
		if !d.inFrame {
			if err := d.nextFrame(); err != nil {
				return 0, nil, err
			}
		}
		if d.frame.control() {
			if err := d.controlFrame(); err != nil {
				return 0, nil, err
			}
			continue
		}
		// The usual message is one frame that fits the buffer: no copy.
		if d.frame.fin && d.fragments == 1 && !d.skip && d.pos == 0 && d.left <= len(d.B) {
			b, err := d.whole()
			if err != nil {
				return 0, nil, err
			}
			return d.finish(b)
		}
		for d.left > 0 {
			if err := d.more(); err != nil {
				return 0, nil, err
			}
			d.collect()
		}
		d.inFrame = false
		if d.frame.fin {
			return d.finish(d.message())
		}
	}
}

// nextFrame reads a header and checks it against what it follows and against
// the limits, before any memory is taken for it.
func (d *reader) nextFrame() error {
	h, size, err := parseHead(d.B[d.R:d.W])
	for size == 0 && err == nil {
		if err = d.fill(); err == nil {
			h, size, err = parseHead(d.B[d.R:d.W])
		}
	}
	switch {
	case err != nil:
		return err
	case h.masked != d.masked:
		return malformed("wrong masking")
	case h.control():
		// Allowed anywhere.
	case d.inMessage != (h.opcode == opContinuation):
		return malformed("continuation expected or unexpected")
	case d.fragments >= maxFragments:
		return &transport.CloseError{Code: transport.ClosePolicy, Reason: "too many fragments"}
	default:
		longest := uint64(d.limit) * 4
		if h.length > longest || uint64(d.size) > longest-h.length {
			if !d.lost {
				d.lost = true
				return transport.ErrTooLarge
			}
			return &transport.CloseError{Code: transport.CloseTooLarge, Reason: "message too large"}
		}
		if !d.inMessage {
			d.inMessage = true
			d.kind = transport.Binary
			if h.opcode == opText {
				d.kind = transport.Text
			}
		}
		d.fragments++
		d.size += int(h.length)
		if d.size > d.limit {
			d.skip = true
			d.releaseMessage()
		}
	}
	d.R += size
	d.frame, d.inFrame, d.left, d.pos = h, true, int(h.length), 0
	return nil
}

// whole returns the payload of the frame once all of it is in the buffer.
func (d *reader) whole() ([]byte, error) {
	for d.W-d.R < d.left {
		if err := d.fill(); err != nil {
			return nil, err
		}
	}
	b := d.B[d.R : d.R+d.left : d.R+d.left]
	d.R += d.left
	d.inFrame = false
	if d.masked {
		mask(b, d.frame.key, 0)
	}
	return b, nil
}

func (d *reader) controlFrame() error {
	b, err := d.whole()
	if err != nil {
		return err
	}
	if !d.inMessage {
		d.Units++
	}
	if now := time.Now(); now.Sub(d.since) > time.Second {
		d.since, d.controls = now, 0
	}
	if d.controls++; d.controls > maxControls {
		return &transport.CloseError{Code: transport.ClosePolicy, Reason: "too many control frames"}
	}
	return d.control(d.frame.opcode, b)
}

// more makes sure that there is something in the buffer.
func (d *reader) more() error {
	if d.R < d.W {
		return nil
	}
	return d.fill()
}

// collect moves what is there of the frame to the message.
func (d *reader) collect() {
	b := d.B[d.R : d.R+min(d.W-d.R, d.left)]
	d.R += len(b)
	d.left -= len(b)
	if !d.skip {
		if d.masked {
			mask(b, d.frame.key, d.pos)
		}
		if d.msg == nil {
			d.msg = d.pools.Large()
		}
		// The memory grows with what has come, not with what was announced.
		*d.msg = append(*d.msg, b...)
	}
	d.pos += len(b)
}

func (d *reader) message() []byte {
	if d.msg == nil {
		return nil
	}
	return *d.msg
}

func (d *reader) releaseMessage() {
	if d.msg != nil {
		d.pools.ReleaseLarge(d.msg)
		d.msg = nil
	}
}

func (d *reader) finish(b []byte) (transport.Kind, []byte, error) {
	skipped := d.skip
	d.Units++
	d.inMessage, d.skip, d.fragments, d.size = false, false, 0, 0
	switch {
	case skipped:
		return 0, nil, transport.ErrTooLarge
	case d.kind == transport.Text && !utf8.Valid(b):
		return 0, nil, &transport.CloseError{Code: transport.CloseInvalidUTF8, Reason: "invalid UTF-8"}
	}
	return d.kind, b, nil
}
