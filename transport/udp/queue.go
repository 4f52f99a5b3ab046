package udp

// overhead is what a datagram counts beside its bytes in QueueBytes.
const overhead = 64

// A queue is what came in for a session, in order. It is filled by one side, then
// emptied by the other.
type queue struct {
	buf   []byte // the datagrams, but for those that were too large
	sizes []int
	cost  int

	// How much of it has been taken.
	next, off int
}

// push appends a datagram, unless that makes the queue cost more than bound. Of one
// that is longer than most nothing but the size is kept.
func (q *queue) push(datagram []byte, most, bound int) bool {
	n := len(datagram)
	if n > most {
		datagram = nil
	}
	if q.cost+len(datagram)+overhead > bound {
		return false
	}
	q.cost += len(datagram) + overhead
	q.buf = append(q.buf, datagram...)
	q.sizes = append(q.sizes, n)
	return true
}

// pop returns the oldest datagram and its size.
func (q *queue) pop(most int) (datagram []byte, n int) {
	n = q.sizes[q.next]
	q.next++
	if n <= most {
		datagram = q.buf[q.off : q.off+n : q.off+n]
		q.off += n
	}
	return datagram, n
}

func (q *queue) empty() bool { return q == nil || q.next == len(q.sizes) }

func (q *queue) reset() { *q = queue{buf: q.buf[:0], sizes: q.sizes[:0]} }
