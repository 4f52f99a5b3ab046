package mesh

import (
	"container/list"
	"time"
)

// A lasting is a map of bounded size whose values last for a time. When it is full
// the one that was put or used longest ago goes.
type lasting[K comparable, V any] struct {
	most  int
	index map[K]*list.Element
	order list.List // of lasts[K, V], that put or used longest ago first
}

type lasts[K comparable, V any] struct {
	key   K
	value V
	until time.Time
}

func newLasting[K comparable, V any](most int) *lasting[K, V] {
	return &lasting[K, V]{most: most, index: make(map[K]*list.Element)}
}

func (l *lasting[K, V]) put(key K, value V, until time.Time) {
	l.remove(key)
	if l.order.Len() >= l.most {
		l.remove(l.order.Front().Value.(lasts[K, V]).key)
	}
	l.index[key] = l.order.PushBack(lasts[K, V]{key, value, until})
}

func (l *lasting[K, V]) get(key K, now time.Time) (value V, ok bool) {
	e := l.index[key]
	if e == nil {
		return value, false
	}
	x := e.Value.(lasts[K, V])
	if !now.Before(x.until) {
		l.remove(key)
		return value, false
	}
	return x.value, true
}

// use is get, and has the key count as put last when room is needed.
func (l *lasting[K, V]) use(key K, now time.Time) (value V, ok bool) {
	if value, ok = l.get(key, now); ok {
		l.order.MoveToBack(l.index[key])
	}
	return value, ok
}

func (l *lasting[K, V]) remove(key K) {
	if e := l.index[key]; e != nil {
		l.order.Remove(e)
		delete(l.index, key)
	}
}

// sweep removes what is over, of the front of the order: all of it, where values
// last equally long and none is used.
func (l *lasting[K, V]) sweep(now time.Time) {
	for e := l.order.Front(); e != nil && !now.Before(e.Value.(lasts[K, V]).until); e = l.order.Front() {
		l.remove(e.Value.(lasts[K, V]).key)
	}
}
