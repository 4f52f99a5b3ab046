package stream

import "sync"

const (
	readSize  = 16 << 10 // of a buffer that a socket is read into
	idleSize  = 4 << 10  // of one that is kept where there is no waiting without one
	WriteSize = 64 << 10 // of a buffer that frames are put together in, in bytes
	MaxFirst  = idleSize // the most that a Config's First may hold, in bytes
)

// Pools are the buffers that the connections of one listener or dialer share, so
// that those that are idle hold none. The zero value is ready; all methods may
// be called concurrently.
type Pools struct{ read, write, large sync.Pool }

func (p *Pools) readBuffer() []byte {
	if b, ok := p.read.Get().(*[readSize]byte); ok {
		return b[:]
	}
	return new([readSize]byte)[:]
}

func (p *Pools) writeBuffer() *[WriteSize]byte {
	if b, ok := p.write.Get().(*[WriteSize]byte); ok {
		return b
	}
	return new([WriteSize]byte)
}

func (p *Pools) releaseWrite(b *[WriteSize]byte) { p.write.Put(b) }

// Large returns an empty slice to append to, for what does not fit a read
// buffer.
func (p *Pools) Large() *[]byte {
	if b, ok := p.large.Get().(*[]byte); ok {
		return b
	}
	return new([]byte)
}

// ReleaseLarge takes a slice back. The caller forgets it.
func (p *Pools) ReleaseLarge(b *[]byte) {
	*b = (*b)[:0]
	p.large.Put(b)
}
