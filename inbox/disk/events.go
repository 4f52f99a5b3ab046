package disk

import (
	"fmt"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// pebbleLog is Pebble's logger. What Pebble would end the process for fails the
// store.
type pebbleLog struct{ db *DB }

func (pebbleLog) Infof(string, ...any) {}

func (l pebbleLog) Errorf(format string, args ...any) {
	l.db.log.Warn("inbox store", "dir", l.db.dir, "pebble", fmt.Sprintf(format, args...))
}

func (l pebbleLog) Fatalf(format string, args ...any) {
	l.db.fail(fmt.Errorf(format, args...))
}

// line returns the first line of an error, for what Pebble says has more, and
// loggers that know its errors write pages of it.
func line(err error) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	return first
}

// warnEvery is how often what Pebble tries ten times a second is said to fail.
const warnEvery = 10 * time.Second

// events are what Pebble tells of its work in the background, which goes on.
func (db *DB) events() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			now, last := time.Now().UnixNano(), db.warned.Load()
			if db.failed() == nil && now-last >= int64(warnEvery) && db.warned.CompareAndSwap(last, now) {
				db.log.Warn("inbox store: tidying up failed, and is tried again", "dir", db.dir, "err", line(err))
			}
		},
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			db.damage("damaged file "+info.Path, info.Details)
		},
	}
}
