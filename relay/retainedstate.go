package relay

import (
	"encoding/binary"
	"sync"
	"time"
)

// Retained values in the State: bucket, and key, which is the realm and the
// topic. A value is
//
//	version 1 | realm u8 | uvarint n | publisher n | id 16 | form | flags | data
const (
	retainedBucket  = "retained"
	retainedVersion = 1
)

const (
	stateWriters = 16              // at a time: a State shares the cost of being durable
	stateRetry   = 5 * time.Second // after an error
)

func retainedKey(topic Address) string { return string([]byte{byte(topic.Realm)}) + topic.Name }

func (v *retained) encode() []byte {
	b := append(make([]byte, 0, 32+len(v.from.Name)+len(v.data)), retainedVersion, byte(v.from.Realm))
	b = binary.AppendUvarint(b, uint64(len(v.from.Name)))
	b = append(b, v.from.Name...)
	b = append(b, v.id[:]...)
	b = append(b, v.form, v.flags)
	return append(b, v.data...)
}

// decodeRetained keeps a part of b.
func decodeRetained(b []byte) (v *retained, ok bool) {
	if len(b) < 2 || b[0] != retainedVersion {
		return nil, false
	}
	v = &retained{from: Address{Realm: Realm(b[1])}}
	n, k := binary.Uvarint(b[2:])
	if k <= 0 {
		return nil, false
	}
	if b = b[2+k:]; n > uint64(len(b)) || uint64(len(b))-n < uint64(len(v.id)+2) {
		return nil, false
	}
	v.from.Name, b = string(b[:n]), b[n:]
	b = b[copy(v.id[:], b):]
	v.form, v.flags, v.data = b[0], b[1], b[2:]
	return v, true
}

// load reads the values that an earlier server has kept.
func (t *topics) load() {
	a := &t.retained
	a.mu.Lock()
	defer a.mu.Unlock()
	damaged, tooMany := 0, 0
	for it, err := range a.state.Range(a.s.ctx, retainedBucket, "") {
		if err != nil {
			a.s.log.Error("retained values: reading", "err", err)
			a.s.count.ignore("state: retained values not read")
			break
		}
		v, ok := decodeRetained(it.Value)
		if !ok || it.Key == "" {
			damaged++
			continue
		}
		if !a.set(t.space(Realm(it.Key[0])), it.Key[1:], v) {
			tooMany++
		}
	}
	if damaged > 0 || tooMany > 0 {
		a.s.log.Error("retained values: some were left out", "damaged", damaged, "over_the_limits", tooMany)
	}
}

// behind says whether there is no room to remember that a topic has changed, since
// the State has not taken anything for long. The caller holds a.mu.
func (a *values) behind(topic Address) bool {
	_, known := a.dirty[topic]
	return !known && len(a.dirty) >= a.s.limits.RetainedValues
}

// changed has the value of a topic written. The caller holds a.mu.
func (a *values) changed(topic Address) {
	if a.state == nil {
		return
	}
	if a.dirty == nil {
		a.dirty = make(map[Address]struct{})
	}
	if _, known := a.dirty[topic]; !known {
		topic.Name = string([]byte(topic.Name)) // it may be borrowed
		a.dirty[topic] = struct{}{}
	}
	if !a.writing {
		a.writing = true
		a.s.pumps.Go(a.write)
	}
}

// take returns the topics to write now.
func (a *values) take() map[Address]struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	topics := a.dirty
	a.dirty, a.writing = nil, len(topics) > 0
	return topics
}

// write writes until nothing is left. What fails is tried again, but once the
// server closes.
func (a *values) write() {
	for topics := a.take(); len(topics) > 0; topics = a.take() {
		closing := a.isClosing()
		failed, err := a.writeAll(topics)
		if err == nil {
			continue
		}
		a.s.log.Error("retained values: writing", "failed", len(failed), "err", err)
		a.s.count.ignore("state: retained values not written")
		if closing {
			continue
		}
		a.mu.Lock()
		for _, topic := range failed {
			a.changed(topic)
		}
		a.mu.Unlock()
		retry := time.NewTimer(stateRetry)
		select {
		case <-retry.C:
		case <-a.s.closed:
			retry.Stop()
		}
	}
}

func (a *values) isClosing() bool {
	select {
	case <-a.s.closed:
		return true
	default:
		return false
	}
}

// writeAll writes the values that topics have now, several at a time, and returns
// those that failed with one of the errors.
func (a *values) writeAll(topics map[Address]struct{}) (failed []Address, err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	places := make(chan struct{}, stateWriters)
	for topic := range topics {
		places <- struct{}{}
		all.Go(func() {
			if e := a.writeOne(topic); e != nil {
				mu.Lock()
				failed, err = append(failed, topic), e
				mu.Unlock()
			}
			<-places
		})
	}
	all.Wait()
	return failed, err
}

func (a *values) writeOne(topic Address) error {
	v, ok := a.s.topics.space(topic.Realm).values.Get(topic.Name)
	if !ok {
		return a.state.Delete(a.s.ctx, retainedBucket, retainedKey(topic))
	}
	return a.state.Put(a.s.ctx, retainedBucket, retainedKey(topic), v.encode())
}
