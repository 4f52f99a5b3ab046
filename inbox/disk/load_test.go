package disk

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"

	"github.com/sotto-relay/sotto/inbox"
)

var people = []string{"alice", "bob", "carol"}

// A teller is told what is asked of the store, before, and what it answered,
// after.
type teller interface {
	put(name string)
	stored(name string)
	delete(name string)
	deleted(name string)
	write(key string, n int)
	durable(key string, n int)
}

// A load does all that a relay does to a store, and has it told.
type load struct {
	db   *DB
	tell teller
	next map[string]int // the number of the next message of "to/from"
	rnd  *rand.Rand
}

func newLoad(db *DB, tell teller, seed uint64) *load {
	return &load{db, tell, make(map[string]int), rand.New(rand.NewPCG(seed, 0))}
}

// name returns the name of the next message of a sender to a recipient.
func (l *load) name(to, from string) string {
	l.next[to+"/"+from]++
	return messageName(to, from, l.next[to+"/"+from])
}

// send puts some messages without waiting for each, and returns when they are
// answered.
func (l *load) send(from string, n int) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for range n {
		name := l.name(people[l.rnd.IntN(len(people))], from)
		l.tell.put(name)
		wg.Add(1)
		l.db.Inbox().Put(ctx, message(name), inbox.Quota{}, func(r inbox.Result) {
			defer wg.Done()
			if r.Err == nil {
				l.tell.stored(name)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, r.Err)
		})
	}
	wg.Wait()
	return failed
}

// fetch reads some messages of a recipient and deletes what it has read.
func (l *load) fetch(to string, n int) error {
	address := inbox.Address{Realm: 1, Name: to}
	var seqs []uint64
	var names []string
	for e, err := range l.db.Inbox().Entries(ctx, address, 0) {
		if err != nil {
			return err
		}
		name, _, _ := strings.Cut(string(e.Data), "|")
		l.tell.delete(name)
		seqs, names = append(seqs, e.Seq), append(names, name)
		if len(seqs) == n {
			break
		}
	}
	if len(seqs) == 0 {
		return nil
	}
	deleted, err := l.db.Inbox().Delete(ctx, address, seqs...)
	if err != nil {
		return err
	}
	if deleted != len(seqs) {
		return fmt.Errorf("deleted %d of %d", deleted, len(seqs))
	}
	for _, name := range names {
		l.tell.deleted(name)
	}
	return nil
}

// remember counts a value of the state up.
func (l *load) remember(key string) error {
	l.next[key]++
	n := l.next[key]
	l.tell.write(key, n)
	err := l.db.State().Put(ctx, "history", key, []byte(strconv.Itoa(n)))
	if err == nil {
		l.tell.durable(key, n)
	}
	return err
}

// step does one thing or another.
func (l *load) step(who string) error {
	switch l.rnd.IntN(4) {
	case 0:
		return l.fetch(who, 1+l.rnd.IntN(6))
	case 1:
		return l.remember(who)
	}
	return l.send(who, 1+l.rnd.IntN(6))
}
