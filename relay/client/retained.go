package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// retainedNames is how many names of a group are remembered. The oldest go when there
// are more.
const retainedNames = 1024

// A retainedName is a blinded name, as relays have it, under which this Client has had
// something retained. It is cleared when there is another epoch (spec native.md,
// "Blinded topics"), also if that something has been ended or replaced meanwhile.
type retainedName struct {
	epoch uint32 // whose key has made it
	name  string
}

func (r retainedName) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, r.epoch)
	b = binary.BigEndian.AppendUint16(b, uint16(len(r.name)))
	return append(b, r.name...)
}

func decodeRetained(b []byte) (all []retainedName, err error) {
	for len(b) > 0 {
		if len(b) < 6 {
			return nil, errStored
		}
		epoch, n := binary.BigEndian.Uint32(b), int(binary.BigEndian.Uint16(b[4:]))
		if b = b[6:]; len(b) < n {
			return nil, errStored
		}
		all = append(all, retainedName{epoch, string(b[:n])})
		b = b[n:]
	}
	return all, nil
}

// forget returns a state without some names.
func (s *groupState) forget(cleared []retainedName) *groupState {
	next := *s
	next.retained = slices.DeleteFunc(slices.Clone(s.retained), func(r retainedName) bool {
		return slices.Contains(cleared, r)
	})
	return &next
}

// hold waits until nobody else makes names from the latest key of a group to have
// something retained, and lets nobody until free is called. Who clears the names of a
// key holds it until there is another, so that nothing is published after that.
func (g *groups) hold(ctx context.Context) (free func(), err error) {
	select {
	case g.naming <- struct{}{}:
		return func() { <-g.naming }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// retained returns the names that are remembered.
func (g *groups) retained(n groupName) []retainedName {
	s, _ := g.get(n)
	if s == nil {
		return nil
	}
	return s.retained
}

// old returns the names that are remembered of epochs that are over.
func (g *groups) old(n groupName) []retainedName {
	s, _ := g.get(n)
	return slices.DeleteFunc(slices.Clone(s.retained), func(r retainedName) bool {
		return r.epoch == s.latest().Epoch()
	})
}

// names returns those of all groups, and what is closed when one changes.
func (g *groups) names() (all []groupName, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for n := range g.all {
		all = append(all, n)
	}
	return all, g.changed
}

// retains implements sealer.
func (s *groupSealer) retains(ctx context.Context, name string, data []byte) error {
	if s.names == NamesClear {
		return nil
	}
	_, epoch, err := crypto.ParseGroupHead(data)
	if err != nil {
		return err
	}
	r := retainedName{epoch, name}
	return s.group.c.groups.change(ctx, s.group.name, func(state *groupState) (*groupState, error) {
		if slices.Contains(state.retained, r) {
			return nil, nil
		}
		next := *state
		next.retained = append(slices.Clone(state.retained), r)
		next.retained = next.retained[max(0, len(next.retained)-retainedNames):]
		return &next, nil
	})
}

// rekey begins a new epoch without some members. refused: names of the old one were not
// cleared.
func (g *Group) rekey(ctx context.Context, without []crypto.PublicKey) (refused, err error) {
	if g.name.owner != g.c.cfg.Identity.Public() {
		return nil, ErrNotOwner
	}
	free, err := g.c.groups.hold(ctx)
	if err != nil {
		return nil, err
	}
	defer free()
	cleared, refused, err := g.c.clearRetained(ctx, g.c.groups.retained(g.name))
	if err != nil {
		return nil, err
	}
	return refused, g.edit(ctx, func(s *groupState) (*groupState, error) {
		key, err := s.latest().Next(time.Now())
		if err != nil {
			return nil, err
		}
		next := s.with(key, time.Now()).forget(cleared)
		next.members = slices.DeleteFunc(slices.Clone(s.members), func(m crypto.PublicKey) bool {
			return slices.Contains(without, m)
		})
		return next, nil
	})
}

// clearRetained ends what is retained under names, and returns those that it has
// cleared, and why the relay refuses others. With err, ctx or the Client has ended.
func (c *Client) clearRetained(ctx context.Context, names []retainedName) (cleared []retainedName, refused, err error) {
	sent := make([]*pending, 0, len(names))
	for _, r := range names {
		p, failed := c.enqueuePublication(ctx, feedKey{frame.TypePublish, r.name}, nil, sendOptions{retain: true})
		if failed != nil {
			err = failed
			break
		}
		sent = append(sent, p)
	}
	for i, p := range sent { // also if ctx has ended, which takes them back
		var re *RefusedError
		switch _, failed := c.await(ctx, p); {
		case failed == nil:
			cleared = append(cleared, names[i])
		case errors.As(failed, &re):
			refused = fmt.Errorf("client: clearing what is retained under old names: %w", failed)
		default:
			err = failed
		}
	}
	return cleared, refused, err
}

// clearOld clears what is left of epochs that are over, until the Client ends: what we
// had retained as a member, and what was not cleared before. What the relay refuses it
// tries again when a group changes.
func (c *Client) clearOld() {
	for {
		groups, changed := c.groups.names()
		for _, n := range groups {
			if err := c.clearOldOf(n); err != nil && c.life.Err() == nil {
				c.groups.safe.failed(err)
			}
		}
		select {
		case <-changed:
		case <-c.life.Done():
			return
		}
	}
}

func (c *Client) clearOldOf(n groupName) error {
	if len(c.groups.old(n)) == 0 {
		return nil
	}
	free, err := c.groups.hold(c.life)
	if err != nil {
		return err
	}
	names := c.groups.old(n) // all that were made with old keys are in the outbox, or there
	free()
	cleared, _, _ := c.clearRetained(c.life, names)
	if len(cleared) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.life, storeTime)
	defer cancel()
	return c.groups.change(ctx, n, func(s *groupState) (*groupState, error) {
		return s.forget(cleared), nil
	})
}
