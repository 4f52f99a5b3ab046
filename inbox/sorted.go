package inbox

import (
	"slices"
	"strings"
)

// blockSize is the most items of a block. An insertion moves a part of one block
// and, once in a while, of the list of blocks: microseconds up to millions.
const blockSize = 256

// A sorted is a map whose keys are in order: blocks of items, none of them
// empty. The zero value is empty.
type sorted struct {
	blocks [][]Item
}

// find returns the block and the place in it where key is, or would go.
func (s *sorted) find(key string) (block, i int, ok bool) {
	block, ok = slices.BinarySearchFunc(s.blocks, key, func(b []Item, key string) int {
		return strings.Compare(b[0].Key, key)
	})
	if ok {
		return block, 0, true
	}
	if block > 0 { // the last one that begins before key
		block--
	}
	if block < len(s.blocks) {
		i, ok = slices.BinarySearchFunc(s.blocks[block], key, func(it Item, key string) int {
			return strings.Compare(it.Key, key)
		})
	}
	return block, i, ok
}

func (s *sorted) get(key string) (value []byte, ok bool) {
	b, i, ok := s.find(key)
	if !ok {
		return nil, false
	}
	return s.blocks[b][i].Value, true
}

func (s *sorted) set(key string, value []byte) {
	b, i, ok := s.find(key)
	if ok {
		s.blocks[b][i].Value = value
		return
	}
	if len(s.blocks) == 0 {
		s.blocks = [][]Item{nil}
	}
	s.blocks[b] = slices.Insert(s.blocks[b], i, Item{strings.Clone(key), value})
	if full := s.blocks[b]; len(full) > blockSize {
		half := len(full) / 2
		s.blocks = slices.Insert(s.blocks, b+1, slices.Clone(full[half:]))
		clear(full[half:])
		s.blocks[b] = full[:half]
	}
}

// delete removes a key and returns what it had.
func (s *sorted) delete(key string) (value []byte, ok bool) {
	b, i, ok := s.find(key)
	if !ok {
		return nil, false
	}
	value = s.blocks[b][i].Value
	s.blocks[b] = slices.Delete(s.blocks[b], i, i+1)
	s.shrink(b)
	return value, true
}

// shrink keeps few items from holding much memory: a block that has become small
// goes, joins the next one if that is small too, or lets go of its spare room.
func (s *sorted) shrink(b int) {
	block := s.blocks[b]
	switch {
	case len(block) == 0:
		s.blocks = slices.Delete(s.blocks, b, b+1)
	case b+1 < len(s.blocks) && len(block)+len(s.blocks[b+1]) <= blockSize/4:
		s.blocks[b] = slices.Concat(block, s.blocks[b+1])
		s.blocks = slices.Delete(s.blocks, b+1, b+2)
	case len(block) < cap(block)/4:
		s.blocks[b] = slices.Clone(block)
	}
}

// list fills batch with items from a key on and returns how many it found.
func (s *sorted) list(batch []Item, from string) (n int) {
	b, i, _ := s.find(from)
	for ; b < len(s.blocks) && n < len(batch); b, i = b+1, 0 {
		n += copy(batch[n:], s.blocks[b][i:])
	}
	return n
}
