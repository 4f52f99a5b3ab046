package ws

import "sync"

const (
	readSize   = 16 << 10 // of a buffer that a socket is read into
	idleSize   = 4 << 10  // of one that is kept where there is no waiting without one
	writeSize  = 64 << 10 // of a buffer that frames are put together in
	writeExtra = 3 * (maxHead + maxControl)
)

// pools are the buffers that the connections of one Handler or Dialer share, so
// that those that are idle hold none.
type pools struct{ read, write, messages sync.Pool }

func (p *pools) readBuffer() []byte {
	if b, ok := p.read.Get().(*[readSize]byte); ok {
		return b[:]
	}
	return new([readSize]byte)[:]
}

// releaseRead takes back what readBuffer returned.
func (p *pools) releaseRead(b []byte) { p.read.Put((*[readSize]byte)(b)) }

func (p *pools) writeBuffer() *[writeSize]byte {
	if b, ok := p.write.Get().(*[writeSize]byte); ok {
		return b
	}
	return new([writeSize]byte)
}

func (p *pools) releaseWrite(b *[writeSize]byte) { p.write.Put(b) }

func (p *pools) message() *[]byte {
	if b, ok := p.messages.Get().(*[]byte); ok {
		return b
	}
	return new([]byte)
}

func (p *pools) releaseMessage(b *[]byte) {
	*b = (*b)[:0]
	p.messages.Put(b)
}
