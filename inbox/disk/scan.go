package disk

import (
	"bytes"
	"fmt"
	"math/big"

	"github.com/cockroachdb/pebble/v2"
)

// A visitor is told of what a scan meets, in order of the keys. An error ends the
// scan.
type visitor struct {
	use func(key, body []byte) error
	// bad gets the key from which on something cannot be read.
	bad func(from []byte, err error) error
}

// scan visits all values whose key begins with a prefix. What Pebble panics about
// is damage.
func (db *DB) scan(prefix []byte, v visitor) (err error) {
	if err := db.enter(); err != nil {
		return err
	}
	defer db.readers.Done()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errDamaged, p)
		}
	}()
	it, err := db.pebble.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: successor(prefix)})
	if err != nil {
		return err
	}
	defer it.Close()
	return walk(it, prefix, v.bad, func() error {
		key := it.Key()
		value, err := it.ValueAndErr()
		if err == nil {
			if value, err = unseal(value, key); err == nil {
				err = v.use(key, value)
			}
		}
		return err
	})
}

// A cursor is what walk needs of an iterator.
type cursor interface {
	SeekGE(key []byte) bool
	Next() bool
	Key() []byte
	Error() error
}

// walk brings a cursor to all keys that begin with a prefix, in order, and calls
// each there, which may return an error that isDamage.
func walk(it cursor, prefix []byte, bad func(from []byte, err error) error, each func() error) error {
	at := bytes.Clone(prefix) // the first key that has not been dealt with
	for ok := it.SeekGE(at); ; {
		for ; ok; ok = it.Next() {
			key := bytes.Clone(it.Key())
			at = append(key, 0)
			err := each()
			if isDamage(err) {
				err = bad(key, err)
			}
			if err != nil {
				return err
			}
		}
		err := it.Error()
		if !isDamage(err) {
			return err
		}
		if err := bad(at, err); err != nil {
			return err
		}
		if at = resume(it, at, len(prefix)); at == nil {
			return nil
		}
		ok = it.SeekGE(at)
	}
}

// resume returns the first key from which on the cursor can go on when it meets
// damage at one: nil if there is none with the same fixed bytes. Tables and their
// blocks are stretches of keys, so it looks for the end of one, as if keys were
// numbers: in steps of doubling length until it is outside, then by halves. What
// is between two damaged stretches may be stepped over.
func resume(it cursor, at []byte, fixed int) []byte {
	width := max(len(at), 32) // keys that agree in so much are not told apart
	if at[0] == entrySpace || at[0] == dataSpace {
		width = max(len(at), seqKeySize)
	}
	inside := make([]byte, width)
	copy(inside, at)
	key := func(n *big.Int) []byte { return n.FillBytes(make([]byte, width)) }
	outside := func(n *big.Int) bool {
		it.SeekGE(key(n))
		return !isDamage(it.Error())
	}
	lo, hi, one := new(big.Int).SetBytes(inside), new(big.Int), big.NewInt(1)
	last := new(big.Int).SetBytes(successor(inside[:fixed]))
	last.Sub(last.Lsh(last, uint(8*(width-fixed))), one)
	for step := one; ; step = new(big.Int).Lsh(step, 1) {
		if lo.Cmp(last) >= 0 {
			return nil
		}
		hi = new(big.Int).Add(lo, step)
		if hi.Cmp(last) > 0 {
			hi = last
		}
		if outside(hi) {
			break
		}
		lo = hi
	}
	for {
		mid := new(big.Int).Add(lo, hi)
		if mid.Rsh(mid, 1); mid.Cmp(lo) == 0 {
			return key(hi)
		}
		if outside(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
}
