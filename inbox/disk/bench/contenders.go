package main

import (
	"context"
	"database/sql"
	"encoding/binary"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	_ "modernc.org/sqlite"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/inbox/disk"
)

// A contender stores a message durably before put returns.
type contender interface {
	put(writer, n int, data []byte)
	close()
}

// load has writers put as fast as they can, one message after another each, and
// returns how many there were in a second.
func load(c contender, writers int) float64 {
	var puts atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for w := range writers {
		wg.Go(func() {
			data := message(w)
			for n := 0; time.Since(start) < *each; n++ {
				c.put(w, n, data)
				puts.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(puts.Load()) / time.Since(start).Seconds()
}

// message is 1 KiB that does not compress, like what is encrypted.
func message(seed int) []byte {
	b := make([]byte, 1024)
	x := uint64(seed)*0x9e3779b97f4a7c15 + 1
	for i := 0; i < len(b); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(b[i:], x)
	}
	return b
}

type barePebble struct{ db *pebble.DB }

func openPebble(dir string) contender {
	db, err := pebble.Open(dir, &pebble.Options{MemTableSize: 32 << 20, FormatMajorVersion: pebble.FormatTableFormatV6, Logger: quiet{}})
	check(err)
	return barePebble{db}
}

func (c barePebble) put(writer, n int, data []byte) {
	key := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(writer)), uint64(n))
	check(c.db.Set(key, data, pebble.Sync))
}

func (c barePebble) close() { check(c.db.Close()) }

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(string, ...any) { panic("pebble failed") }

type store struct {
	db *disk.DB
	s  inbox.Store
}

func openDisk(dir string) contender { return openStore(dir) }

func openStore(dir string) store {
	db, err := disk.Open(dir, nil)
	check(err)
	return store{db, db.Inbox()}
}

// address is a key of 32 bytes.
func address(i int) inbox.Address {
	b := make([]byte, 32)
	binary.BigEndian.PutUint64(b, uint64(i)*0x9e3779b97f4a7c15)
	return inbox.Address{Realm: 1, Name: string(b)}
}

var quota = inbox.Quota{Messages: 1 << 30, Bytes: 1 << 50, PerSender: 1 << 30}

func (c store) put(writer, n int, data []byte) {
	e := &inbox.Entry{
		To: address(writer), From: address(-1 - writer), Data: data,
		Stored: time.Now(), Expires: time.Now().Add(7 * 24 * time.Hour),
	}
	binary.BigEndian.PutUint64(e.ID[:], uint64(writer))
	binary.BigEndian.PutUint64(e.ID[8:], uint64(n)+1)
	c.putEntry(e)
}

func (c store) putEntry(e *inbox.Entry) {
	done := make(chan error, 1)
	c.s.Put(context.Background(), e, quota, func(r inbox.Result) { done <- r.Err })
	check(<-done)
}

func (c store) close() { check(c.db.Close()) }

// sqlite commits what has come together in one transaction: the same as we do.
type sqlite struct {
	db   *sql.DB
	rows chan row
	end  sync.WaitGroup
}

type row struct {
	writer, n int
	data      []byte
	done      chan struct{}
}

func openSQLite(dir string) contender {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	check(err)
	db.SetMaxOpenConns(1)
	_, err = db.Exec(`CREATE TABLE entry (recipient BLOB, seq INTEGER, data BLOB, PRIMARY KEY (recipient, seq)) WITHOUT ROWID`)
	check(err)
	c := &sqlite{db: db, rows: make(chan row, 1024)}
	c.end.Go(c.commit)
	return c
}

func (c *sqlite) commit() {
	insert, err := c.db.Prepare(`INSERT INTO entry VALUES (?, ?, ?)`)
	check(err)
	for first := range c.rows {
		tx, err := c.db.Begin()
		check(err)
		in := tx.Stmt(insert)
		var done []chan struct{}
		for r, more := first, true; more; {
			_, err := in.Exec([]byte(address(r.writer).Name), r.n, r.data)
			check(err)
			done = append(done, r.done)
			select {
			case r, more = <-c.rows:
			default:
				more = false
			}
		}
		check(tx.Commit())
		for _, d := range done {
			close(d)
		}
	}
	check(insert.Close())
}

func (c *sqlite) put(writer, n int, data []byte) {
	done := make(chan struct{})
	c.rows <- row{writer, n, data, done}
	<-done
}

func (c *sqlite) close() {
	close(c.rows)
	c.end.Wait()
	check(c.db.Close())
}
