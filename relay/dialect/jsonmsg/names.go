package jsonmsg

import (
	"context"
	"errors"

	"github.com/sotto-relay/sotto/relay"
)

// books are what the sessions of a server know of names and keys.
type books struct {
	aliases ledger // whose key has which name
	proven  ledger // keys that have been proven once, and are taken without proof no more
}

type booksKey struct{}

func (s *session) books() *books {
	return s.port.Shared(booksKey{}, func() any {
		return &books{aliases: ledger{bucket: "json-alias"}, proven: ledger{bucket: "json-proven"}}
	}).(*books)
}

func (s *session) rules() *rules {
	d := &s.dialect
	return &rules{state: s.port.State(), max: d.Aliases, perSource: d.AliasesPerSource, ttl: d.AliasTTL}
}

// mayHave says whether r may have its address, whoever asks for it: a name that is
// bound belongs to its key.
func (s *session) mayHave(ctx context.Context, r *registration) error {
	p, bound, err := s.books().aliases.find(ctx, s.rules(), r.addr)
	if err != nil {
		return s.stateFailed(err)
	}
	if bound && (!r.keyed || p.key != r.key) {
		return errBound
	}
	return nil
}

// needsProof says whether the key of r is only taken with proof.
func (s *session) needsProof(ctx context.Context, r *registration) (bool, error) {
	if !r.keyed || s.dialect.RequireProof {
		return r.keyed, nil
	}
	_, proven, err := s.books().proven.find(ctx, s.rules(), string(r.key[:]))
	if err != nil {
		return false, s.stateFailed(err)
	}
	return proven, nil
}

// record notes what a registration says of names and keys. undo takes back what is
// new of the name. (A registration of the same two that began meanwhile loses the
// name with it, until the next one.)
func (s *session) record(ctx context.Context, r *registration) (undo func(), err error) {
	undo = func() {}
	source := ""
	if src := s.port.Source(); src.IsValid() {
		source = src.String()
	}
	b := s.books()
	if r.secret != nil {
		if _, err := b.proven.record(ctx, s.rules(), string(r.key[:]), r.key, source); err != nil {
			return nil, s.stateFailed(err)
		}
	}
	if !r.alias() || r.doubtful {
		// A key may have bound the name since mayHave was asked.
		return undo, s.mayHave(ctx, r)
	}
	fresh, err := b.aliases.record(ctx, s.rules(), r.addr, r.key, source)
	if err != nil {
		return nil, s.stateFailed(err)
	}
	if fresh {
		undo = func() {
			if err := b.aliases.remove(ctx, s.rules(), r.addr); err != nil {
				_ = s.stateFailed(err)
			}
		}
	}
	return undo, nil
}

// useNames notes, from time to time, that the session uses its names.
func (s *session) useNames() {
	r, rules := s.own, s.rules()
	if !r.alias() && r.secret == nil {
		return
	}
	s.daily = s.port.After(rules.step(), func() {
		ctx, b := context.Background(), s.books()
		var err error
		if r.alias() {
			err = b.aliases.touch(ctx, rules, r.addr, r.key)
		}
		if r.secret != nil {
			err = errors.Join(err, b.proven.touch(ctx, rules, string(r.key[:]), r.key))
		}
		if err != nil {
			_ = s.stateFailed(err)
		}
		s.useNames()
	})
}

// stateFailed returns what the peer is told. What failed is counted, and logged at
// a level that strangers cannot flood.
func (s *session) stateFailed(err error) error {
	var r *relay.Refusal
	if errors.As(err, &r) {
		return err
	}
	s.port.Ignored("state store failed")
	s.port.Log().Debug("json: names and keys", "err", err)
	return errOverloaded
}
