package main

import (
	"math"
	"math/bits"
	"time"
)

// A histogram counts times in buckets that are at most 1/32 wide of what they
// hold, and so is exact to 3 %. Its size does not depend on how much it counts.
type histogram struct {
	buckets [(64 - subBits) << subBits]uint64
	n       uint64
	max     time.Duration
}

const subBits = 5

// add counts a time; one below zero is zero.
func (h *histogram) add(d time.Duration) {
	d = max(d, 0)
	h.buckets[bucket(uint64(d))]++
	h.n++
	h.max = max(h.max, d)
}

// bucket returns the bucket of a value: values up to 2^subBits have one each,
// then each power of two is divided into 2^subBits.
func bucket(v uint64) int {
	shift := max(bits.Len64(v)-subBits-1, 0)
	return shift<<subBits + int(v>>shift)
}

// top returns the largest value in a bucket.
func top(i int) uint64 {
	shift := max(i>>subBits-1, 0)
	return uint64(i-shift<<subBits+1)<<shift - 1
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
	h.n += other.n
	h.max = max(h.max, other.max)
}

// quantile returns a time that q of all do not exceed; zero if there are none.
func (h *histogram) quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(h.n)))
	seen := uint64(0)
	for i, n := range h.buckets {
		if seen += n; n > 0 && seen >= rank {
			return min(time.Duration(top(i)), h.max)
		}
	}
	return h.max
}
