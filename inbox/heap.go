package inbox

import (
	"slices"
	"time"
)

// timed is what a heap holds: something with a time, and room for the place
// that it has in the heap, counted from 1; 0 when it is in none.
type timed interface {
	due() time.Duration
	at() *int32
}

// A heap has what is due first at index 0. Unlike container/heap it finds what
// it holds without its users keeping indices.
type heap[T timed] []T

// set puts x where it belongs: as a new one, or after its time has changed.
func (h *heap[T]) set(x T) {
	if *x.at() == 0 {
		*h = append(*h, x)
		*x.at() = int32(len(*h))
	}
	h.fix(int(*x.at()) - 1)
}

// remove takes x out, if it is there.
func (h *heap[T]) remove(x T) {
	if *x.at() == 0 {
		return
	}
	i, last := int(*x.at())-1, len(*h)-1
	h.swap(i, last)
	*h = slices.Delete(*h, last, last+1)
	*x.at() = 0
	if i < last {
		h.fix(i)
	}
	if len(*h) < cap(*h)/4 {
		*h = slices.Clone(*h)
	}
}

// until calls do for all that is due at a time, in no order.
func (h heap[T]) until(t time.Duration, do func(T)) { h.walk(0, t, do) }

func (h heap[T]) walk(i int, t time.Duration, do func(T)) {
	if i < len(h) && h[i].due() <= t {
		do(h[i])
		h.walk(2*i+1, t, do)
		h.walk(2*i+2, t, do)
	}
}

func (h heap[T]) fix(i int) {
	for i > 0 && h.less(i, (i-1)/2) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	for {
		child := 2*i + 1
		if child+1 < len(h) && h.less(child+1, child) {
			child++
		}
		if child >= len(h) || !h.less(child, i) {
			return
		}
		h.swap(i, child)
		i = child
	}
}

func (h heap[T]) less(i, j int) bool { return h[i].due() < h[j].due() }

func (h heap[T]) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	*h[i].at(), *h[j].at() = int32(i+1), int32(j+1)
}
