package disk

import "encoding/binary"

// A sum goes with each group of changes. It says how much there is after the
// group, and how many groups had been acknowledged before it, so that nothing can
// go missing without a trace: neither a table that a damaged manifest does not
// name, nor the end of a log that was cut off where the damage looks like an end.
type sum struct {
	messages, bytes uint64
	values          uint64 // of the state
	group           uint64 // counted over all lives of the store
	acked           uint64 // the last group that was durable before
}

func (s sum) append(b []byte) []byte {
	for _, v := range []uint64{s.messages, s.bytes, s.values, s.group, s.acked} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return b
}

func (s *sum) parse(r *reader) {
	for _, v := range []*uint64{&s.messages, &s.bytes, &s.values, &s.group, &s.acked} {
		*v = r.uint64()
	}
}

// holds says whether there is as much as s says.
func (s sum) holds(messages int, bytes int64, values int) bool {
	return s.messages == uint64(messages) && s.bytes == uint64(bytes) && s.values == uint64(values)
}

// recordSum ends a group.
func (db *DB) recordSum(g *group) {
	db.group++
	g.number = db.group
	db.mu.Lock()
	n, size := db.index.Sum()
	db.mu.Unlock()
	s := sum{uint64(n), uint64(size), uint64(db.values), g.number, db.acknowledged.Load()}
	key := metaKey("sum")
	_ = g.batch.Set(key, seal(s.append(nil), key), nil)
}

// lostGroup returns a group that was acknowledged and is not there, according to
// what can be read of the logs in a directory of Pebble's, or zero.
func (db *DB) lostGroup(path string, last sum) uint64 {
	lost := last.group
	w := wreck{fs: db.o.FS, dir: path, lost: func(string, error) {}}
	if w.list(isLog) != nil {
		return 0
	}
	key := metaKey("sum")
	_ = w.read(func(_ revision, k, value []byte) error {
		if string(k) == string(key) {
			if body, err := unseal(value, k); err == nil {
				var s sum
				s.parse(&reader{b: body})
				lost = max(lost, s.acked)
			}
		}
		return nil
	})
	if lost == last.group {
		return 0
	}
	return lost
}
