package mesh

import (
	"context"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
)

// An attested is the clients of which somebody has shown us a valid attachment, each by
// the relay that showed it, ourselves included. Who makes up clients fills only his own
// share: when it is full the oldest of the relay with the most goes.
type attested struct {
	most    int
	by      map[crypto.PublicKey]crypto.PublicKey
	from    map[crypto.PublicKey]*lasting[crypto.PublicKey, struct{}] // by relay
	unsaved map[crypto.PublicKey]struct{}
}

const (
	attestedMost  = 200_000
	attestedLook  = 64  // relays, for the one with the most
	attestedSaved = 100 // a tick: each is synced, and others can have many come up
)

func newAttested(most int) *attested {
	return &attested{
		most: most, by: make(map[crypto.PublicKey]crypto.PublicKey),
		from:    make(map[crypto.PublicKey]*lasting[crypto.PublicKey, struct{}]),
		unsaved: make(map[crypto.PublicKey]struct{}),
	}
}

func (a *attested) has(client crypto.PublicKey) bool {
	_, ok := a.by[client]
	return ok
}

// put notes a client that is at a relay, or that the relay has shown.
func (a *attested) put(client, relay crypto.PublicKey) {
	if old, known := a.by[client]; !known || old != relay {
		a.remove(client)
		if len(a.by) >= a.most {
			a.remove(a.oldestOf(a.largest(relay)))
		}
		a.by[client] = relay
		a.changed(client)
	}
	mine := a.from[relay]
	if mine == nil {
		mine = newLasting[crypto.PublicKey, struct{}](a.most)
		a.from[relay] = mine
	}
	mine.put(client, struct{}{}, time.Time{})
}

// largest returns the relay with the most clients, of one and some others.
func (a *attested) largest(relay crypto.PublicKey) crypto.PublicKey {
	most, looked := 0, 0
	if mine := a.from[relay]; mine != nil {
		most = mine.order.Len()
	}
	for other, its := range a.from {
		if its.order.Len() > most {
			relay, most = other, its.order.Len()
		}
		if looked++; looked == attestedLook {
			break
		}
	}
	return relay
}

func (a *attested) oldestOf(relay crypto.PublicKey) crypto.PublicKey {
	return a.from[relay].order.Front().Value.(lasts[crypto.PublicKey, struct{}]).key
}

func (a *attested) remove(client crypto.PublicKey) {
	relay, known := a.by[client]
	if !known {
		return
	}
	delete(a.by, client)
	if a.from[relay].remove(client); a.from[relay].order.Len() == 0 {
		delete(a.from, relay)
	}
	a.changed(client)
}

// changed has a client saved, or deleted in the state store, unless too many wait for
// that.
func (a *attested) changed(client crypto.PublicKey) {
	if len(a.unsaved) < a.most {
		a.unsaved[client] = struct{}{}
	}
}

// The clients are kept in the state store:
//
//	bucket  "mesh-attested"
//	key     the client's key, 32 bytes
//	value   the key of the relay that showed an attachment, 32 bytes
const attestedBucket = "mesh-attested"

// some returns some of what has changed, for the state store: nil is to be deleted.
func (a *attested) some() map[string][]byte {
	changed := make(map[string][]byte)
	for client := range a.unsaved {
		if len(changed) == attestedSaved {
			break
		}
		delete(a.unsaved, client)
		changed[string(client[:])] = nil
		if relay, ok := a.by[client]; ok {
			changed[string(client[:])] = relay[:]
		}
	}
	return changed
}

func (a *attested) load(ctx context.Context, state inbox.State) error {
	for it, err := range state.Range(ctx, attestedBucket, "") {
		if err != nil {
			return err
		}
		if client := (crypto.PublicKey{}); len(it.Key) == len(client) && len(it.Value) == len(client) {
			copy(client[:], it.Key)
			a.put(client, crypto.PublicKey(it.Value))
			delete(a.unsaved, client)
		}
	}
	return nil
}
