// Package audit logs what a blind relay delivered: one line for each frame and
// recipient, with connections, entity, kind and size, and never a byte of the
// frame (spec blind.md, "Audit").
//
// A [Log] keeps the last lines in memory and brings all of them to its sinks: a
// [File], a slog.Logger ([Slog]), a function ([Func]). It never holds up who
// delivers: lines wait in a queue of bounded length, and when a sink cannot keep
// up, or its disk is full, those that are lost are counted, and the count is
// written as a line of its own, in their place, as soon as writing works again.
//
// Everything here may be called by any goroutine.
package audit

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	// kept is how many lines Recent returns at most.
	kept = 10_000

	// defaultQueue is the default of Log.Queue.
	defaultQueue = 1 << 16

	// most is how many lines a sink is given at a time.
	most = 512

	// pause is the time between two tries of a sink that fails.
	pause = time.Second

	// patience is how long Close waits for a sink that does not return.
	patience = 5 * time.Second
)

// A Log is an audit log. The zero value keeps lines in memory only. Fields are set
// before the first use and not changed afterwards.
type Log struct {
	// Sinks get every line. Each is written by a goroutine of its own, which lives
	// while there is something to write.
	Sinks []Sink

	// Queue is how many lines may wait for a sink. Default 65,536.
	Queue int

	// Logger is told when a sink begins to fail, and when it works again. Nil:
	// slog.Default().
	Logger *slog.Logger

	mu      sync.Mutex
	lines   []Line // a ring once it is full: the line number n is at n modulo its length
	count   uint64 // lines so far
	writers []*writer
	wg      sync.WaitGroup // writers that run
	closed  bool
	closing chan struct{} // closed with Close
}

// Delivered logs that a frame entered the queues of connections: a copy of line
// for each of them, with that as To. The strings are kept.
func (l *Log) Delivered(line Line, to []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.init()
	for _, id := range to {
		line.To = id
		if len(l.lines) < l.size() {
			l.lines = append(l.lines, line)
		} else {
			l.lines[l.count%uint64(len(l.lines))] = line
		}
		l.count++
	}
	for _, w := range l.writers {
		if !w.running && !l.closed {
			w.running = true
			l.wg.Go(w.run)
		}
	}
}

// init sets up what the zero value lacks. The caller holds mu.
func (l *Log) init() {
	if l.closing != nil {
		return
	}
	l.closing = make(chan struct{})
	for _, s := range l.Sinks {
		l.writers = append(l.writers, &writer{log: l, sink: s})
	}
}

func (l *Log) size() int { return max(l.queue(), kept) }

func (l *Log) queue() int {
	if l.Queue <= 0 {
		return defaultQueue
	}
	return l.Queue
}

// appendLines appends the lines from number n up to before number end.
func (l *Log) appendLines(dst []Line, n, end uint64) []Line {
	for ; n < end; n++ {
		dst = append(dst, l.lines[n%uint64(len(l.lines))])
	}
	return dst
}

// Recent returns the last lines, 10,000 at most, the oldest first.
func (l *Log) Recent() []Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(l.count, kept)
	return l.appendLines(make([]Line, 0, n), l.count-n, l.count)
}

// Close writes what waits, as far as the sinks take it at once, and closes those
// that are an io.Closer. The error says how many lines were lost at the end, or what
// closing failed with. What is delivered afterwards is kept in memory only.
func (l *Log) Close() error {
	l.mu.Lock()
	l.init()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	close(l.closing)
	l.mu.Unlock()
	if !l.written() {
		return errHangs // a sink that is written to cannot be closed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var failed error
	for _, w := range l.writers {
		if c, ok := w.sink.(io.Closer); ok {
			if err := c.Close(); err != nil {
				failed = fmt.Errorf("audit: %w", err)
			}
		}
	}
	for _, w := range l.writers {
		if lost := w.lost + int(l.count-w.next); lost > 0 {
			failed = fmt.Errorf("audit: %d lines are lost: %w", lost, w.err)
		}
	}
	return failed
}

var errHangs = errors.New("audit: a sink does not return; what waited for it is lost")

// written waits for the writers to end, and says whether they have.
func (l *Log) written() bool {
	ended := make(chan struct{})
	go func() {
		l.wg.Wait()
		close(ended)
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
		return false
	}
}
