package client

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
)

// The bucket of whole files in Config.Store: the key is the sender's 32 ‖ transfer 16;
// the value when it was whole, u64 ms ‖ index of the last part u32 ‖ headerSum 32.
const (
	filesBucket  = "client/files/"
	fileEndSize  = 8 + 4 + 32
	transferSize = 32 + 16
)

// A transferEnd says how a transfer has ended. Zero: how it began is not known.
type transferEnd struct {
	whole  bool
	last   uint32   // index of the last part, if whole
	header [32]byte // likewise, its headerSum
	offer  [16]byte // id of the message with part 0, if not
}

// headerSum stands for a header, whose name is nobody's business on a disk.
func headerSum(h *crypto.TransferHeader) [32]byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(h.Size))
	return sha256.Sum256(append(append(b, h.SHA256[:]...), h.Name...))
}

// ends remembers the latest ends of transfers, for what still comes of them. Those of
// whole files are by themselves, since others cost a stranger nothing, and come in any
// number; and they are in the store, so that the next Client does not take the file
// again.
type ends struct {
	whole, others someEnds
	shelf         *shelf // nil: none
}

// open begins with what is in a store.
func (e *ends) open(ctx context.Context, s *shelf) error {
	type stored struct {
		transferEnd
		key transferKey
		at  uint64
	}
	var all []stored
	old := uint64(time.Now().Add(-rememberTime).UnixMilli())
	var stale []string
	err := s.load(ctx, func(it inbox.Item) error {
		if len(it.Key) != transferSize || len(it.Value) != fileEndSize {
			return errStored
		}
		v := stored{at: binary.BigEndian.Uint64(it.Value)}
		if v.at < old {
			stale = append(stale, it.Key)
			return nil
		}
		v.key = transferKey{crypto.PublicKey([]byte(it.Key)), [16]byte([]byte(it.Key[32:]))}
		v.transferEnd = transferEnd{whole: true, last: binary.BigEndian.Uint32(it.Value[8:]), header: [32]byte(it.Value[12:])}
		all = append(all, v)
		return nil
	})
	s.delete(stale)
	slices.SortFunc(all, func(a, b stored) int { return cmp.Compare(a.at, b.at) })
	for _, v := range all {
		e.whole.set(v.key, v.transferEnd)
	}
	e.shelf = s
	return err
}

func (e *ends) get(k transferKey) (end transferEnd, known bool) {
	if end, known = e.whole.of[k]; !known {
		end, known = e.others.of[k]
	}
	return end, known
}

func (e *ends) set(k transferKey, end transferEnd) {
	if !end.whole {
		e.others.set(k, end)
		return
	}
	forgotten, full := e.whole.set(k, end)
	if e.shelf == nil {
		return
	}
	b := binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixMilli()))
	b = append(binary.BigEndian.AppendUint32(b, end.last), end.header[:]...)
	e.shelf.put(k.stored(), b)
	if full {
		e.shelf.delete([]string{forgotten.stored()})
	}
}

func (k transferKey) stored() string { return string(k.peer[:]) + string(k.id[:]) }

type someEnds struct {
	of    map[transferKey]transferEnd
	order []transferKey // the oldest first
}

const maxEnds = 1024

// set notes an end, and returns the one that it forgets for that if they are full.
func (e *someEnds) set(k transferKey, end transferEnd) (forgotten transferKey, full bool) {
	if e.of == nil {
		e.of = make(map[transferKey]transferEnd)
	}
	if _, known := e.of[k]; !known {
		if full = len(e.order) == maxEnds; full {
			forgotten = e.order[0]
			delete(e.of, forgotten)
			e.order = e.order[1:]
		}
		e.order = append(e.order, k)
	}
	e.of[k] = end
	return forgotten, full
}
