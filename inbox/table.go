package inbox

import "maps"

// A table is a map that gives memory back, which a Go map never does. The zero
// value is empty.
type table[K comparable, V any] struct {
	m    map[K]V
	peak int // most keys since m was made
}

func (t *table[K, V]) get(k K) V { return t.m[k] }

func (t *table[K, V]) set(k K, v V) {
	if t.m == nil {
		t.m = make(map[K]V)
	}
	t.m[k] = v
	t.peak = max(t.peak, len(t.m))
}

func (t *table[K, V]) delete(k K) {
	delete(t.m, k)
	if t.peak > 8 && len(t.m) < t.peak/4 { // up to 8 keys share one allocation
		small := make(map[K]V, len(t.m))
		maps.Copy(small, t.m)
		t.m, t.peak = small, len(small)
	}
}
