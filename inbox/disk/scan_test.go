package disk

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/inbox"
)

// A torn is a cursor over keys in blocks, of which some cannot be read.
type torn struct {
	keys  [][]byte
	block func(i int) int
	bad   map[int]bool
	at    int
	err   error
	seeks int
}

func (c *torn) land(i int) bool {
	c.at, c.err = i, nil
	if i < len(c.keys) && c.bad[c.block(i)] {
		c.err = errDamaged
	}
	return i < len(c.keys) && c.err == nil
}

func (c *torn) SeekGE(key []byte) bool {
	c.seeks++
	i, _ := slices.BinarySearchFunc(c.keys, key, bytes.Compare)
	return c.land(i)
}

func (c *torn) Next() bool   { return c.land(c.at + 1) }
func (c *torn) Key() []byte  { return c.keys[c.at] }
func (c *torn) Error() error { return c.err }

// TestWalk: of blocks that cannot be read nothing is visited. Of the others
// everything is, if it is one stretch that cannot be read, and much if there are
// more.
func TestWalk(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	visited, readable := 0, 0
	for range 2000 {
		var keys [][]byte
		switch rnd.IntN(3) {
		case 0: // entries, with gaps
			n := rnd.Uint64N(1 << rnd.IntN(40))
			for range rnd.IntN(200) {
				n += 1 + rnd.Uint64N(1<<rnd.IntN(12))
				keys = append(keys, seqKey(entrySpace, n))
			}
		case 1: // values of the state
			for range rnd.IntN(200) {
				keys = append(keys, stateKey(fmt.Sprint("bucket", rnd.IntN(3)), fmt.Sprint(rnd.IntN(1e6))))
			}
		case 2: // anything
			for range rnd.IntN(100) {
				k := []byte{stateSpace}
				for range rnd.IntN(5) {
					k = append(k, byte(1+rnd.IntN(3)*127))
				}
				keys = append(keys, k)
			}
		}
		slices.SortFunc(keys, bytes.Compare)
		keys = slices.CompactFunc(keys, bytes.Equal)
		size := 1 + rnd.IntN(20)
		c := &torn{keys: keys, block: func(i int) int { return i / size }, bad: make(map[int]bool)}
		var want [][]byte
		one, from, to := rnd.IntN(2) == 0, rnd.IntN(20), rnd.IntN(20)
		for i := range keys {
			if one {
				c.bad[i/size] = from <= i/size && i/size < to
			} else if i%size == 0 {
				c.bad[i/size] = rnd.IntN(3) == 0
			}
			if !c.bad[i/size] {
				want = append(want, keys[i])
			}
		}
		var got [][]byte
		stretches := 0
		prefix := []byte{entrySpace}
		if len(keys) > 0 {
			prefix = keys[0][:1]
		}
		err := walk(c, prefix, func(_ []byte, err error) error {
			stretches++
			assert.Equal(t, errDamaged, err)
			return nil
		}, func() error {
			got = append(got, bytes.Clone(c.Key()))
			return nil
		})
		require.NoError(t, err)
		if one {
			require.Equal(t, want, got)
			continue
		}
		for _, k := range got {
			at := slices.IndexFunc(want, func(w []byte) bool { return bytes.Equal(k, w) })
			require.GreaterOrEqual(t, at, 0)
			want = want[at+1:]
		}
		visited += len(got)
		readable += len(got) + len(want)
		assert.LessOrEqual(t, c.seeks, 1+600*stretches, "a number for each stretch, not for each key")
	}
	t.Logf("%d of %d keys between damage at random", visited, readable)
	assert.Greater(t, visited, readable/2)
}

// TestScanPanics: a panic below is no end of the program.
func TestScanPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openMem(t)
		defer db.Close()
		require.NoError(t, putTo(db, bob, "x", inbox.Quota{}).Err)
		err := db.scan([]byte{entrySpace}, visitor{use: func(_, _ []byte) error { panic("index out of range") }})
		assert.ErrorIs(t, err, errDamaged)
		assert.NoError(t, db.scan([]byte{entrySpace}, visitor{use: func(_, _ []byte) error { return nil }}))
	})
}

func TestSuccessor(t *testing.T) {
	for k, want := range map[string]string{"a": "b", "a\xff": "b", "a\xfe": "a\xff", "\x00": "\x01"} {
		assert.Equal(t, want, string(successor([]byte(k))))
	}
	assert.Nil(t, successor([]byte("\xff\xff")))
	assert.Equal(t, uint64(5), binary.BigEndian.Uint64(seqKey(entrySpace, 5)[1:]))
}
