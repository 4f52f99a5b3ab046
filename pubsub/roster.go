package pubsub

import "hash/maphash"

// An id is a subscriber as a small integer. Zero is none.
type id uint32

// A roster gives subscribers their ids. It grows in pieces, since copying it
// would take long, and lets go of its memory when nobody is left.
type roster[S comparable] struct {
	seed   maphash.Seed
	ids    index[S, *subscriber[S]]
	pieces []*[pieceSize]subscriber[S]
	last   id // the highest in use so far
	free   []id
}

const pieceSize = 256

type subscriber[S comparable] struct {
	who     S
	id      id
	filters []*filter
}

func (s *subscriber[S]) is(who S) bool { return s.who == who }

// of returns the id of a subscriber, zero if it has none.
func (r *roster[S]) of(who S) id {
	if s, ok := r.ids.get(hash(r.seed, who), who); ok {
		return s.id
	}
	return 0
}

// at returns the subscriber with an id that is in use.
func (r *roster[S]) at(i id) *subscriber[S] { return &r.pieces[i/pieceSize][i%pieceSize] }

// add gives a subscriber an id.
func (r *roster[S]) add(who S) (i id) {
	if n := len(r.free); n > 0 {
		i, r.free = r.free[n-1], r.free[:n-1]
	} else {
		r.last++
		i = r.last
		if int(i/pieceSize) == len(r.pieces) {
			r.pieces = append(r.pieces, new([pieceSize]subscriber[S]))
		}
	}
	s := r.at(i)
	s.who, s.id = who, i
	r.ids.put(hash(r.seed, who), s)
	return i
}

func (r *roster[S]) remove(i id) {
	s := r.at(i)
	r.ids.delete(hash(r.seed, s.who), s.who)
	*s = subscriber[S]{}
	if r.free = append(r.free, i); len(r.free) == int(r.last) {
		r.pieces, r.last, r.free = nil, 0, nil
	}
}
