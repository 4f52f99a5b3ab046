package pubsub

import (
	"iter"
	"slices"
	"strings"
)

// An order is strings in order of their bytes: blocks, none of them empty.
type order struct {
	blocks [][]string
}

// blockSize is the most strings of a block. A change moves a part of one block
// and, once in a while, of the list of blocks: microseconds up to millions.
const blockSize = 256

// find returns the block and the place in it where s is, or would go.
func (o *order) find(s string) (block, i int) {
	block, ok := slices.BinarySearchFunc(o.blocks, s, func(b []string, s string) int {
		return strings.Compare(b[0], s)
	})
	if ok {
		return block, 0
	}
	if block > 0 { // the last one that begins before s
		block--
	}
	if block < len(o.blocks) {
		i, _ = slices.BinarySearch(o.blocks[block], s)
	}
	return block, i
}

// add adds s, which is not there.
func (o *order) add(s string) {
	b, i := o.find(s)
	if len(o.blocks) == 0 {
		o.blocks = [][]string{nil}
	}
	o.blocks[b] = slices.Insert(o.blocks[b], i, s)
	if full := o.blocks[b]; len(full) > blockSize {
		half := len(full) / 2
		o.blocks = slices.Insert(o.blocks, b+1, slices.Clone(full[half:]))
		clear(full[half:])
		o.blocks[b] = full[:half]
	}
}

// remove removes s, which is there. Few strings do not hold much memory: a block
// that has become small goes, joins the next one if that is small too, or lets go
// of its spare room.
func (o *order) remove(s string) {
	b, i := o.find(s)
	block := slices.Delete(o.blocks[b], i, i+1)
	o.blocks[b] = block
	switch {
	case len(block) == 0:
		o.blocks = slices.Delete(o.blocks, b, b+1)
	case b+1 < len(o.blocks) && len(block)+len(o.blocks[b+1]) <= blockSize/4:
		o.blocks[b] = slices.Concat(block, o.blocks[b+1])
		o.blocks = slices.Delete(o.blocks, b+1, b+2)
	case len(block) < cap(block)/4:
		o.blocks[b] = slices.Clone(block)
	}
}

// from yields the strings from s on.
func (o *order) from(s string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for b, i := o.find(s); b < len(o.blocks); b, i = b+1, 0 {
			for _, s := range o.blocks[b][i:] {
				if !yield(s) {
					return
				}
			}
		}
	}
}
