package policy_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/policy"
)

func TestOpen(t *testing.T) {
	assert.True(t, reflect.ValueOf(policy.Open()).IsZero())
	assert.True(t, reflect.ValueOf(policy.All()).IsZero())
	assert.True(t, reflect.ValueOf(policy.All(policy.Open(), policy.Open())).IsZero())
}

// TestAllClaims: what comes of grants and refusals, in order.
func TestAllClaims(t *testing.T) {
	at := func(h int) time.Time { return time.Date(2030, 1, 1, h, 0, 0, 0, time.UTC) }
	one, two := &relay.Refusal{Code: relay.CodeDenied}, &relay.Refusal{Code: relay.CodeNotAuthenticated}
	type step struct {
		expires time.Time
		err     error
		none    bool // no function
	}
	for name, c := range map[string]struct {
		steps   []step
		expires time.Time
		err     error
		asked   int
	}{
		"one, for ever":    {steps: []step{{}}, asked: 1},
		"one, until 3":     {steps: []step{{expires: at(3)}}, expires: at(3), asked: 1},
		"all for ever":     {steps: []step{{}, {}, {}}, asked: 3},
		"earliest first":   {steps: []step{{expires: at(1)}, {expires: at(2)}}, expires: at(1), asked: 2},
		"earliest last":    {steps: []step{{expires: at(2)}, {}, {expires: at(1)}}, expires: at(1), asked: 3},
		"never is latest":  {steps: []step{{expires: at(2)}, {}}, expires: at(2), asked: 2},
		"never, then 2":    {steps: []step{{}, {expires: at(2)}}, expires: at(2), asked: 2},
		"nil skipped":      {steps: []step{{none: true}, {expires: at(2)}, {none: true}}, expires: at(2), asked: 1},
		"refused":          {steps: []step{{err: one}}, err: one, asked: 1},
		"first refusal":    {steps: []step{{}, {err: two}, {err: one}}, err: two, asked: 2},
		"no grant beside":  {steps: []step{{expires: at(1)}, {err: one, expires: at(1)}}, err: one, asked: 2},
		"nil, then refuse": {steps: []step{{none: true}, {err: one}, {}}, err: one, asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			var policies []relay.Policy
			for _, s := range c.steps {
				var p relay.Policy
				if !s.none {
					p.Claim = func(context.Context, relay.ClaimInfo) (relay.Grant, error) {
						asked++
						return relay.Grant{Expires: s.expires}, s.err
					}
				}
				policies = append(policies, p)
			}
			g, err := policy.All(policies...).Claim(t.Context(), relay.ClaimInfo{})
			assert.Equal(t, c.err, err)
			assert.Equal(t, c.expires, g.Expires)
			assert.Equal(t, c.asked, asked)
		})
	}
}

// TestAllFields: every function that a policy has is asked, in order, up to the
// first refusal. One that relay adds and All does not know fails here.
func TestAllFields(t *testing.T) {
	fields := reflect.VisibleFields(reflect.TypeFor[relay.Policy]())
	require.NotEmpty(t, fields)
	for _, f := range fields {
		t.Run(f.Name, func(t *testing.T) {
			var asked []string
			with := func(name string, err error) (p relay.Policy) {
				hook := reflect.MakeFunc(f.Type, func([]reflect.Value) []reflect.Value {
					asked = append(asked, name)
					var results []reflect.Value
					for i := range f.Type.NumOut() {
						results = append(results, reflect.New(f.Type.Out(i)).Elem())
					}
					if err != nil {
						results[len(results)-1].Set(reflect.ValueOf(err))
					}
					return results
				})
				reflect.ValueOf(&p).Elem().FieldByIndex(f.Index).Set(hook)
				return p
			}
			all := policy.All(with("a", nil), policy.Open(), with("b", nil), with("c", assert.AnError), with("d", nil))
			for _, other := range fields {
				assert.Equal(t, other.Name != f.Name, reflect.ValueOf(all).FieldByIndex(other.Index).IsNil(), other.Name)
			}
			results := reflect.ValueOf(all).FieldByIndex(f.Index).Call([]reflect.Value{
				reflect.ValueOf(t.Context()), reflect.Zero(f.Type.In(1)),
			})
			assert.Equal(t, assert.AnError, results[len(results)-1].Interface())
			assert.Equal(t, []string{"a", "b", "c"}, asked)

			asked = nil
			all = policy.All(with("a", nil), with("b", nil))
			results = reflect.ValueOf(all).FieldByIndex(f.Index).Call([]reflect.Value{
				reflect.ValueOf(t.Context()), reflect.Zero(f.Type.In(1)),
			})
			assert.True(t, results[len(results)-1].IsNil())
			assert.Equal(t, []string{"a", "b"}, asked)
		})
	}
}
