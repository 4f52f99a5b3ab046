package mailbox

import (
	"encoding/hex"
	"net/http"
	"strconv"
	"time"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/internal/ecma"
)

// An answer is the body of a response that is written while it is made: so its
// memory is bounded, whatever is in a mailbox.
//
// It counts as handed over once the connection has taken it: the write and the
// flush of the last byte have returned no error, in time. net/http then holds none
// of it, but for the end mark of a chunked response, which a long one is. What the
// kernel does with it later cannot be known here; that is what leases are for.
type answer struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration // for each chunk
	until   time.Time     // of the whole answer; zero: as long as chunks are taken
	buf     []byte
	begun   bool // something has been written
	err     error
}

const answerChunk = 32 << 10

func (h *handler) newAnswer(w http.ResponseWriter, contentType string) *answer {
	w.Header().Set("Content-Type", contentType)
	return &answer{w: w, rc: http.NewResponseController(w), timeout: h.writeTimeout}
}

// blob appends a blob as JSON, writing as it grows. id is empty without a lease.
func (a *answer) blob(e *inbox.Entry, id string) {
	a.buf = append(a.buf, `{"blob":"`...)
	for rest := e.Data; len(rest) > 0 && a.err == nil; {
		part := ecma.Whole(rest, answerChunk)
		a.buf = ecma.AppendEscaped(a.buf, part)
		rest = rest[len(part):]
		if len(a.buf) >= answerChunk {
			a.write()
		}
	}
	a.buf = append(a.buf, `","sender":"`...)
	a.buf = hex.AppendEncode(a.buf, []byte(e.From.Name))
	a.buf = append(a.buf, `","timestamp":`...)
	a.buf = strconv.AppendInt(a.buf, e.Stored.UnixMilli(), 10)
	if id != "" {
		a.buf = append(a.buf, `,"id":"`...)
		a.buf = append(a.buf, id...)
		a.buf = append(a.buf, '"')
	}
	a.buf = append(a.buf, '}')
}

// write writes what has been appended.
func (a *answer) write() {
	if a.err != nil {
		return
	}
	deadline := time.Now().Add(a.timeout)
	if !a.until.IsZero() && a.until.Before(deadline) {
		deadline = a.until
	}
	_ = a.rc.SetWriteDeadline(deadline) // what cannot have any has another way to end
	_, a.err = a.w.Write(a.buf)
	a.buf, a.begun = a.buf[:0], true
}

// flush writes what there is through to the connection.
func (a *answer) flush() error {
	a.write()
	if a.err == nil {
		a.err = a.rc.Flush()
	}
	return a.err
}

// finish ends an answer. Only one that has been written in part already goes
// without its length.
func (a *answer) finish() error {
	if !a.begun {
		a.w.Header().Set("Content-Length", strconv.Itoa(len(a.buf)))
	}
	return a.flush()
}
