package main

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// A progress shows how far files have come: as a bar on a terminal, as lines with
// JSON, else not at all. It is used by one goroutine at a time.
type progress struct {
	p    *program
	json bool

	last time.Time // that something was shown
}

// How often something is shown.
const (
	barTime  = 100 * time.Millisecond
	lineTime = time.Second
)

// at tells of a file of which so many bytes have come since start. The peer is the
// other side's address.
func (g *progress) at(name, peer string, done, size int64, start time.Time) error {
	now := time.Now()
	switch {
	case g.json && now.Sub(g.last) >= lineTime:
		g.last = now
		return writeJSON(g.p.stdout, struct {
			Type string `json:"type"`
			Peer string `json:"peer"`
			Name string `json:"name"`
			Done int64  `json:"done"`
			Size int64  `json:"size"`
		}{"progress", peer, name, done, size})
	case !g.json && g.p.terminal && now.Sub(g.last) >= barTime:
		g.last = now
		g.p.bar.Store(true)
		_, err := fmt.Fprint(g.p.stderr, wipe, bar(name, done, size, now.Sub(start)))
		return err
	}
	return nil
}

// wipe empties the line of a terminal.
const wipe = "\r\x1b[K"

// clear makes room for what is not a bar.
func (p *program) clear() {
	if p.bar.Swap(false) {
		fmt.Fprint(p.stderr, wipe)
	}
}

// bar returns a line that fits into 80 columns.
func bar(name string, done, size int64, took time.Duration) string {
	const width, columns = 20, 20
	share := float64(done) / float64(max(size, 1))
	full := int(share * columns)
	name = printable(name)
	if utf8.RuneCountInString(name) > width {
		name = string([]rune(name)[:width-1]) + "…"
	}
	rate := float64(done) / max(took.Seconds(), 0.001)
	return fmt.Sprintf("%s [%s%s] %3.0f %% of %s, %s/s", name,
		strings.Repeat("#", full), strings.Repeat(" ", columns-full), 100*share, inUnits(size), inUnits(int64(rate)))
}

// inUnits returns a number of bytes for people.
func inUnits(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}
