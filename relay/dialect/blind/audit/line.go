package audit

import (
	"context"
	"log/slog"
	"strconv"

	"github.com/sotto-relay/sotto/frame"
)

// A Line says that one frame entered the queue of one recipient. Or, if Lost is
// not zero, that so many lines are missing in its place; then TS is when that was
// written, and nothing else is set.
type Line struct {
	TS     int64  // in milliseconds since 1970
	From   string // id of the connection that it came from
	To     string // and of the one that it goes to
	Entity string // the header's entityId, or what that leads to
	Kind   string
	Bytes  int // length of the frame without the channel byte
	Lost   int
}

// Append appends the line as a JSON object, without a line feed, in one of two
// forms:
//
//	{"ts":1700000000000,"fromConnId":"a","toConnId":"b","entityId":"e","kind":"update","bytes":512}
//	{"ts":1700000000000,"lost":17}
func (l *Line) Append(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"ts":`...), l.TS, 10)
	if l.Lost != 0 {
		dst = strconv.AppendInt(append(dst, `,"lost":`...), int64(l.Lost), 10)
		return append(dst, '}')
	}
	for _, f := range l.texts() {
		dst = append(append(append(dst, `,"`...), f.key...), `":`...)
		dst = frame.AppendText(dst, []byte(f.text))
	}
	dst = strconv.AppendInt(append(dst, `,"bytes":`...), int64(l.Bytes), 10)
	return append(dst, '}')
}

type text struct{ key, text string }

func (l *Line) texts() [4]text {
	return [...]text{{"fromConnId", l.From}, {"toConnId", l.To}, {"entityId", l.Entity}, {"kind", l.Kind}}
}

// A Sink takes the lines of a Log.
type Sink interface {
	// Write takes lines, in order, and returns how many it took: all, or fewer with
	// an error. Those that it did not take come again. It is called by one goroutine
	// at a time, and keeps nothing of the slice.
	Write(lines []Line) (n int, err error)
}

// Func is a function as a Sink.
type Func func(Line)

// Write calls f for each line.
func (f Func) Write(lines []Line) (int, error) {
	for _, l := range lines {
		f(l)
	}
	return len(lines), nil
}

// Slog returns a sink that logs each line: at level Info the attributes of which
// are named as in a file, with the message "delivered"; at level Warn "lost".
func Slog(logger *slog.Logger) Sink {
	return Func(func(l Line) {
		ctx := context.Background()
		if l.Lost != 0 {
			logger.LogAttrs(ctx, slog.LevelWarn, "lost", slog.Int64("ts", l.TS), slog.Int("lost", l.Lost))
			return
		}
		attrs := []slog.Attr{slog.Int64("ts", l.TS)}
		for _, f := range l.texts() {
			attrs = append(attrs, slog.String(f.key, f.text))
		}
		logger.LogAttrs(ctx, slog.LevelInfo, "delivered", append(attrs, slog.Int("bytes", l.Bytes))...)
	})
}
