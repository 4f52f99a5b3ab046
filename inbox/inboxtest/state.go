package inboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sotto-relay/sotto/inbox"
)

// A stateRig is a state store under test.
type stateRig struct {
	*testing.T
	s inbox.State
	o *Options
}

var stateCases = []struct {
	name string
	run  func(*stateRig)
}{
	{"values", (*stateRig).values},
	{"names", (*stateRig).names},
	{"range", (*stateRig).ranges},
	{"changes while ranging", (*stateRig).changing},
	{"contexts and close", (*stateRig).ends},
	{"reopen", (*stateRig).reopens},
	{"concurrent", (*stateRig).concurrent},
	{"random operations", (*stateRig).random},
}

func (r *stateRig) check(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *stateRig) put(bucket, key, value string) {
	r.Helper()
	r.check(r.s.Put(ctx, bucket, key, []byte(value)))
}

func (r *stateRig) get(bucket, key, want string) {
	r.Helper()
	v, ok, err := r.s.Get(ctx, bucket, key)
	r.check(err)
	equal(r, "there", ok, true)
	equal(r, "value", string(v), want)
}

func (r *stateRig) missing(bucket, key string) {
	r.Helper()
	v, ok, err := r.s.Get(ctx, bucket, key)
	r.check(err)
	if ok || len(v) != 0 {
		r.Fatalf("got %q, %t, want nothing", v, ok)
	}
}

func (r *stateRig) list(bucket, from string) (keys []string) {
	r.Helper()
	for it, err := range r.s.Range(ctx, bucket, from) {
		r.check(err)
		keys = append(keys, it.Key)
	}
	return keys
}

func (r *stateRig) same(got, want []string) {
	r.Helper()
	if !slices.Equal(got, want) {
		r.Fatalf("got keys %q, want %q", got, want)
	}
}

func (r *stateRig) values() {
	r.missing("b", "k")
	r.check(r.s.Delete(ctx, "b", "k"))
	v := []byte("value")
	r.check(r.s.Put(ctx, "b", "k", v))
	v[0] = 'X'
	r.get("b", "k", "value")
	got, _, err := r.s.Get(ctx, "b", "k")
	r.check(err)
	got[0] = 'X'
	r.get("b", "k", "value")
	for it, err := range r.s.Range(ctx, "b", "") {
		r.check(err)
		it.Value[0] = 'X'
	}
	r.get("b", "k", "value")
	r.put("b", "k", "")
	r.get("b", "k", "")
	r.check(r.s.Put(ctx, "b", "k", nil))
	r.get("b", "k", "")
	large := strings.Repeat("large", 200_000)
	r.put("b", "k", large)
	r.get("b", "k", large)
	r.missing("c", "k")
	r.check(r.s.Delete(ctx, "b", "k"))
	r.missing("b", "k")
}

// names uses buckets and keys that a careless key encoding mixes up.
func (r *stateRig) names() {
	names := []string{"", "\x00", "\x00\x00", "a", "a\x00", "a\x00\x01", "a/b", "aa", "b", "\xff", "\xff\xff",
		strings.Repeat("n", 300), strings.Repeat("\xff", 300)}
	slices.Sort(names)
	for _, b := range names {
		for _, k := range names {
			r.put(b, k, b+"|"+k)
		}
	}
	for _, b := range names {
		r.same(r.list(b, ""), names)
		for _, k := range names {
			r.get(b, k, b+"|"+k)
		}
	}
	r.check(r.s.Delete(ctx, "a", "\x00"))
	r.missing("a", "\x00")
	r.get("a\x00", "", "a\x00|")
}

func (r *stateRig) ranges() {
	var keys []string
	for i := range 300 {
		keys = append(keys, fmt.Sprintf("%03d", i))
		r.put("b", fmt.Sprintf("%03d", (i*7)%300), "v")
	}
	r.same(r.list("b", ""), keys)
	r.same(r.list("b", "100"), keys[100:])
	r.same(r.list("b", "100\x00"), keys[101:])
	r.same(r.list("b", "0995"), keys[100:])
	r.same(r.list("b", "299\xff"), nil)
	r.same(r.list("nothing", ""), nil)
	for range r.s.Range(ctx, "b", "") {
		break
	}
	for _, k := range keys {
		r.check(r.s.Delete(ctx, "b", k))
	}
	r.same(r.list("b", ""), nil)
}

func (r *stateRig) changing() {
	for i := range 300 {
		r.put("b", fmt.Sprintf("%03d", i), "v")
	}
	last, n := "", 0
	for it, err := range r.s.Range(ctx, "b", "") {
		r.check(err)
		if it.Key <= last && n > 0 {
			r.Fatalf("key %q after %q", it.Key, last)
		}
		last, n = it.Key, n+1
		r.check(r.s.Delete(ctx, "b", it.Key))
		r.put("b", "0"+it.Key, "v") // before the others
	}
	if n < 300 {
		r.Fatalf("saw %d items of 300", n)
	}
}

func (r *stateRig) all(ctx context.Context) map[string]error {
	errs := make(map[string]error)
	_, _, errs["Get"] = r.s.Get(ctx, "b", "k")
	errs["Put"] = r.s.Put(ctx, "b", "k", nil)
	errs["Delete"] = r.s.Delete(ctx, "b", "k")
	for _, err := range r.s.Range(ctx, "b", "") {
		errs["Range"] = err
	}
	for _, err := range r.s.Range(ctx, "nothing", "") {
		errs["Range of nothing"] = err
	}
	return errs
}

func (r *stateRig) ends() {
	r.put("b", "k", "v")
	r.put("b", "l", "v")
	ended, cancel := context.WithCancel(ctx)
	defer cancel()
	var got []error
	for _, err := range r.s.Range(ended, "b", "") {
		got = append(got, err)
		cancel()
	}
	if len(got) != 2 || !errors.Is(got[1], context.Canceled) {
		r.Fatalf("ranging past the end of the context: %v", got)
	}
	check := func(ctx context.Context, want error) {
		errs := r.all(ctx)
		equal(r, "failures", len(errs), 5)
		for name, err := range errs {
			if !errors.Is(err, want) {
				r.Fatalf("%s: got %v, want %v", name, err, want)
			}
		}
	}
	check(ended, context.Canceled)
	r.get("b", "k", "v")
	r.check(r.s.Close())
	r.check(r.s.Close())
	check(ctx, inbox.ErrClosed)
}

func (r *stateRig) reopens() {
	if r.o.ReopenState == nil {
		r.Skip("nothing outlives Close")
	}
	r.put("b", "k", "v")
	r.put("b", "k", "w")
	r.put("b", "gone", "v")
	r.check(r.s.Delete(ctx, "b", "gone"))
	r.s = r.o.ReopenState(r.T, r.s)
	r.get("b", "k", "w")
	r.missing("b", "gone")
	r.same(r.list("b", ""), []string{"k"})
}

func (r *stateRig) concurrent() {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			mine := fmt.Sprint(i)
			for j := range 100 {
				err := errors.Join(
					r.s.Put(ctx, "shared", mine+fmt.Sprintf(" %02d", j), []byte(mine)),
					r.s.Put(ctx, mine, "k", []byte(mine)),
					r.s.Put(ctx, "one", "k", bytes.Repeat([]byte(mine), 100)),
				)
				v, ok, errGet := r.s.Get(ctx, "one", "k")
				if !ok || len(v) != 100 || len(bytes.Trim(v, string(v[:1]))) != 0 {
					r.Errorf("a torn value: %q", v)
				}
				if err := errors.Join(err, errGet, r.s.Delete(ctx, mine, "k")); err != nil {
					r.Error(err)
				}
				for it, err := range r.s.Range(ctx, "shared", mine) {
					if err != nil || it.Key < mine {
						r.Errorf("item %+v: %v", it, err)
					}
				}
			}
		})
	}
	wg.Wait()
	equal(r, "keys", len(r.list("shared", "")), 800)
}

func (r *stateRig) random() {
	rnd := r.o.rand(r.T)
	model := make(map[string]string)
	span := 1500
	for i := range 6000 {
		if i == 3000 {
			span = 100 // and most deletions hit
		}
		key := fmt.Sprint(rnd.IntN(span))
		switch n := rnd.IntN(100); {
		case n < 55:
			value := fmt.Sprint(i)
			r.put("b", key, value)
			model[key] = value
		case n < 70 || span == 100:
			r.check(r.s.Delete(ctx, "b", key))
			delete(model, key)
		case n < 99:
			v, ok, err := r.s.Get(ctx, "b", key)
			r.check(err)
			want, there := model[key]
			equal(r, "there", ok, there)
			equal(r, "value", string(v), want)
		default:
			var want []string
			for _, k := range slices.Sorted(maps.Keys(model)) {
				if k >= key {
					want = append(want, k)
				}
			}
			r.same(r.list("b", key), want)
		}
	}
	r.same(r.list("b", ""), slices.Sorted(maps.Keys(model)))
}
