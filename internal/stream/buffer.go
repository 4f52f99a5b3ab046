package stream

// A Buffer is what has come in of a stream and is not consumed: B[R:W]. It
// belongs to the goroutine that reads.
type Buffer struct {
	B     []byte // nil while nothing is held
	R, W  int
	large *[]byte // what B is of, if it has grown

	// Units counts what has been consumed as a whole: messages, or whatever else
	// its peer may take the message timeout for.
	Units uint64
}

// Grow at least doubles the memory if it is full: so that grows with what has
// come in, not with what was announced.
func (b *Buffer) Grow(p *Pools) {
	if b.R > 0 || b.W < len(b.B) || b.B == nil {
		return
	}
	to := p.Large()
	size := max(2*len(b.B), readSize)
	if cap(*to) < size {
		*to = make([]byte, size)
	}
	*to = (*to)[:cap(*to)]
	copy(*to, b.B)
	w := b.W
	b.release(p)
	b.B, b.W, b.large = *to, w, to
}

// Room makes room behind what is in the buffer, unless that fills it.
func (b *Buffer) Room() {
	if b.R == b.W {
		b.R, b.W = 0, 0
	} else if b.W == len(b.B) {
		b.R, b.W = 0, copy(b.B, b.B[b.R:b.W])
	}
}

// release gives the memory back.
func (b *Buffer) release(p *Pools) {
	switch {
	case b.large != nil:
		p.ReleaseLarge(b.large)
	case len(b.B) == readSize:
		p.read.Put((*[readSize]byte)(b.B))
	}
	*b = Buffer{Units: b.Units}
}
