package audit

import (
	"context"
	"log/slog"
	"time"
)

// A writer brings lines to one sink. Its fields are under the log's mu, but for
// batch, which is the running goroutine's.
type writer struct {
	log     *Log
	sink    Sink
	running bool
	next    uint64 // number of the line to be written next
	lost    int    // lines before that which the sink has not been told of
	err     error  // what the sink fails with, while it does
	batch   []Line
}

// run writes until nothing waits, or until the sink fails after the log was closed.
// One that fails before is tried again after a pause: lines wait meanwhile, as
// many as the queue holds.
func (w *writer) run() {
	for w.take() {
		n, err := w.sink.Write(w.batch)
		w.wrote(n, err)
		if err != nil && !w.rest() {
			return
		}
	}
}

// rest waits for the next try, or returns false if there is to be none.
func (w *writer) rest() bool {
	select {
	case <-w.log.closing:
		return false
	default:
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.log.closing:
	}
	return true
}

// take fills the batch, or ends the writing and returns false if nothing waits.
func (w *writer) take() bool {
	l := w.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if first := l.count - min(l.count, uint64(l.queue())); w.next < first {
		w.lost += int(first - w.next)
		w.next = first
	}
	if w.next == l.count && w.lost == 0 {
		w.running = false
		return false
	}
	w.batch = w.batch[:0]
	if w.lost > 0 {
		w.batch = append(w.batch, Line{TS: time.Now().UnixMilli(), Lost: w.lost})
	}
	w.batch = l.appendLines(w.batch, w.next, min(l.count, w.next+most))
	return true
}

// wrote accounts for the first n lines of the batch.
func (w *writer) wrote(n int, err error) {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	for _, line := range w.batch[:n] {
		if line.Lost == 0 {
			w.next++
			continue
		}
		w.lost = 0
		w.tell(slog.LevelWarn, "lines of the audit log are lost", "count", line.Lost)
	}
	if err != nil && w.err == nil {
		w.tell(slog.LevelError, "the audit log cannot be written; trying again", "err", err)
	}
	if err == nil && w.err != nil {
		w.tell(slog.LevelInfo, "the audit log is written again")
	}
	w.err = err
}

func (w *writer) tell(level slog.Level, msg string, args ...any) {
	logger := w.log.Logger
	if logger == nil {
		logger = slog.Default()
	}
	logger.Log(context.Background(), level, msg, args...)
}
