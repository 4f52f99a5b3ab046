package pubsub

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type number int

func (n *number) is(k number) bool { return *n == k }

// all yields the items.
func (x *index[K, T]) all() func(func(T) bool) {
	return func(yield func(T) bool) {
		x.walk(yield)
	}
}

func (x *index[K, T]) walk(yield func(T) bool) bool {
	if x.parts != nil {
		for i := range x.parts {
			if !x.parts[i].walk(yield) {
				return false
			}
		}
	}
	for _, s := range x.slots {
		if s.hash != 0 && !yield(s.item) {
			return false
		}
	}
	return true
}

// An index against a Go map, with hashes that collide in all ways.
func TestIndex(t *testing.T) {
	for name, hash := range map[string]func(number) uint64{
		"good":  func(n number) uint64 { return uint64(n)*0x9e3779b97f4a7c15 | 1<<40 },
		"equal": func(number) uint64 { return 1 },
		"few":   func(n number) uint64 { return uint64(n)%7 + 1 },
		"high":  func(n number) uint64 { return uint64(n)<<48 | 1<<40 },
	} {
		t.Run(name, func(t *testing.T) {
			most := 10_000
			if name != "good" {
				most = 300
			}
			r := rand.New(rand.NewPCG(1, 2))
			var x index[number, *number]
			var items []*number
			next := number(0)
			for _, grow := range []bool{true, false, true, false} {
				for len(items) > 0 && !grow || len(items) < most && grow {
					if len(items) == 0 || r.IntN(4) > 0 == grow {
						k := next
						next++
						_, ok := x.get(hash(k), k)
						require.False(t, ok)
						items = append(items, &k)
						x.put(hash(k), &k)
					} else {
						i, last := r.IntN(len(items)), len(items)-1
						k := *items[i]
						items[i] = items[last]
						items = items[:last]
						x.delete(hash(k), k)
						_, ok := x.get(hash(k), k)
						require.False(t, ok)
					}
					if len(items)%2000 == 1 || len(items) < 300 && len(items)%10 == 1 {
						require.Equal(t, len(items), x.n)
						for _, item := range items {
							got, ok := x.get(hash(*item), *item)
							require.True(t, ok && got == item)
						}
					}
				}
				if grow {
					assert.Equal(t, most > mostItems, x.parts != nil)
				}
			}
			assert.Equal(t, index[number, *number]{}, x)
		})
	}
}

func TestSet(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var s set
	m := make(map[id]bool)
	for range 20_000 {
		i := id(1 + r.IntN(40))
		require.Equal(t, m[i], s.has(i))
		if m[i] {
			delete(m, i)
			require.Equal(t, len(m) == 0, s.remove(i))
		} else {
			s.add(i)
			m[i] = true
		}
		var buf [1]id
		if len(m) > 0 {
			got := slices.Clone(s.list(&buf))
			require.True(t, slices.IsSorted(got))
			require.Len(t, got, len(m))
			for _, i := range got {
				require.True(t, m[i])
			}
		}
	}
}

func unsafeString(b []byte) string { return unsafe.String(&b[0], len(b)) }
