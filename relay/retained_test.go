package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// kept returns what is in a State: realm, topic, publisher and text.
func kept(t *testing.T, s State) (values []string) {
	for it, err := range s.Range(t.Context(), retainedBucket, "") {
		require.NoError(t, err)
		v, ok := decodeRetained(it.Value)
		require.True(t, ok)
		values = append(values, fmt.Sprintf("%d %s %s %s", it.Key[0], it.Key[1:], v.from.Name, v.data))
	}
	return values
}

// What was retained last outlives the server, and counts as before (case ST-17).
func TestRetainedRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state, limits := inbox.NewMemoryState(nil), Limits{RetainedValues: 40}
		b := newBench(t, &Server{State: state, Limits: limits}, talk{})
		alice, bob := b.as("alice"), b.as("bob")
		for i := range 200 {
			alice.say("keep a/%d %d", i%9, i)
		}
		alice.say("keep a")
		synctest.Wait()
		bob.say("keep a/7 bob's")
		bob.say("drop a/8")
		bob.say("tell a/6 not kept")
		synctest.Wait()
		require.NoError(t, b.Close())

		b = newBench(t, &Server{State: state, Limits: limits}, talk{})
		carol := b.as("carol")
		carol.subscribe("#")
		carol.expect("a alice  (kept)", "a/0 alice 198 (kept)", "a/1 alice 199 (kept)", "a/2 alice 191 (kept)",
			"a/3 alice 192 (kept)", "a/4 alice 193 (kept)", "a/5 alice 194 (kept)", "a/6 alice 195 (kept)", "a/7 bob bob's (kept)")
		carol.silent()
		alice = b.as("alice")
		alice.say("keep b/1")
		alice.say("keep b/2")
		alice.say("keep b/3")
		carol.expect("b/1 alice ", "b/2 alice ")
		alice.expect("no retained-full") // she had 8, and may have 10
		require.NoError(t, b.Close())

		b, log := loud(t, &Server{State: state, Limits: Limits{RetainedValues: 20}})
		carol = b.as("carol")
		carol.subscribe("b/#", "+")
		carol.expect("a alice  (kept)")
		carol.silent()
		assert.Contains(t, log.String(), "over_the_limits=5")
		assert.Len(t, kept(t, state), 11, "what a lower limit leaves out is not deleted")
	})
}

// Values are written soon, not only in the end, and no goroutine stays behind.
func TestRetainedIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := inbox.NewMemoryState(nil)
		b := newBench(t, &Server{State: state}, talk{})
		alice := b.as("alice")
		alice.say("keep a 1")
		alice.say("keep b 1")
		alice.say("drop b")
		alice.say("drop c")
		synctest.Wait()
		assert.Equal(t, []string{"1 a alice 1"}, kept(t, state))
		b.pumps.Wait()
		alice.say("drop a")
		synctest.Wait()
		assert.Empty(t, kept(t, state))
	})
}

func TestRetainedCaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Limits: Limits{RetainedValues: 10, RetainedBytes: 400}}, talk{})
		var ps []peer
		for i := range 6 {
			ps = append(ps, b.as(fmt.Sprint("p", i)))
		}
		watcher := b.as("watcher")
		watcher.subscribe("#")
		keep := func(p int, topic, text, refusal string) {
			t.Helper()
			ps[p].say("keep %s %s", topic, text)
			if refusal != "" {
				ps[p].expect(refusal)
			} else {
				watcher.expect(fmt.Sprintf("%s p%d %s", topic, p, text))
			}
		}
		const full = "no retained-full"
		keep(0, "0a", "x", "")
		keep(0, "0b", "x", "")
		keep(0, "0c", "x", full) // a quarter of 10 for each publisher
		keep(0, "0a", "y", "")
		keep(1, "1a", strings.Repeat("x", 98), "") // and a quarter of 400 bytes, names of topics included
		keep(1, "b", "", full)
		keep(1, "1a", strings.Repeat("x", 99), full)
		keep(1, "1a", strings.Repeat("x", 97), "")
		keep(1, "b", "", "")
		keep(1, "b", "x", full)
		keep(2, "0b", "taken over", "") // so it counts for another one
		keep(0, "0c", "x", "")
		keep(2, "2a", "x", "")
		keep(2, "2b", "x", full)
		ps[3].say("drop 2a")
		watcher.expect("2a p3 ")
		keep(2, "2b", "x", "")
		for i, topic := range []string{"3a", "3b", "4a", "4b"} {
			keep(3+i/2, topic, "x", "")
		}
		keep(5, "5a", "x", full) // the eleventh in all
		ps[5].say("tell 5a x")   // which is not refused
		watcher.expect("5a p5 x")
		keep(5, "4a", "x", "")
		watcher.subscribe("5a", "1a")
		watcher.expect("1a p1 " + strings.Repeat("x", 97) + " (kept)")
		watcher.subscribe("b")
		watcher.expect("b p1  (kept)")
		for _, topic := range []string{"0a", "0b", "0c", "1a", "b", "2b", "3a", "3b", "4a", "4b"} {
			ps[0].say("drop %s", topic)
		}
		synctest.Wait()
		assert.Zero(t, b.topics.retained.sum)
		assert.Empty(t, b.topics.retained.of)
	})
}

// A publisher can have all of its values cleared, and those only.
func TestEraseRetained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := inbox.NewMemoryState(nil)
		b := newBench(t, &Server{State: state}, talk{})
		alice, bob := b.as("alice"), b.as("bob")
		for i := range 300 {
			alice.say("keep a/%d x", i)
			bob.say("keep b/%d x", i)
		}
		alice.say("keep shared x")
		alice.subscribe("#")
		synctest.Wait()
		bob.say("keep shared y")
		alice.drain(t)
		alice.say("erase")
		alice.expect("erased 300")
		alice.say("erase")
		alice.expect("erased 0")
		alice.silent()
		alice.subscribe("a/#", "shared")
		alice.expect("shared bob y (kept)")
		synctest.Wait()
		assert.Len(t, kept(t, state), 301)
		assert.Len(t, b.topics.retained.of, 1)
	})
}

// A troubled State fails, or takes its time, as long as it is told to.
type troubled struct {
	State
	mu   sync.Mutex
	err  error
	late chan struct{}
	puts int
}

func (s *troubled) set(err error, late chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.late = err, late
}

func (s *troubled) wait() error {
	s.mu.Lock()
	s.puts++
	err, late := s.err, s.late
	s.mu.Unlock()
	if late != nil {
		<-late
	}
	return err
}

func (s *troubled) Put(ctx context.Context, bucket, key string, value []byte) error {
	if err := s.wait(); err != nil {
		return err
	}
	return s.State.Put(ctx, bucket, key, value)
}

func (s *troubled) Delete(ctx context.Context, bucket, key string) error {
	if err := s.wait(); err != nil {
		return err
	}
	return s.State.Delete(ctx, bucket, key)
}

// loud returns a bench whose log is read.
func loud(t *testing.T, s *Server) (*bench, *bytes.Buffer) {
	b, log := newBench(t, s, talk{}), new(bytes.Buffer)
	s.Logger = slog.New(slog.NewTextHandler(log, nil))
	return b, log
}

// A State that fails is no matter of the publishers', and is tried again.
func TestRetainedStateFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := &troubled{State: inbox.NewMemoryState(nil)}
		b, log := loud(t, &Server{State: state})
		state.set(errors.New("no room"), nil)
		alice := b.as("alice")
		alice.subscribe("#")
		for i := range 10 {
			alice.say("keep %d secret", i)
			alice.expect(fmt.Sprintf("%d alice secret", i))
		}
		time.Sleep(stateRetry / 2)
		assert.Empty(t, kept(t, state))
		state.set(nil, nil)
		alice.say("keep 3 newer")
		time.Sleep(stateRetry)
		synctest.Wait()
		assert.Len(t, kept(t, state), 10)
		assert.Contains(t, kept(t, state), "1 3 alice newer")
		assert.NotZero(t, b.Stats().Ignored["state: retained values not written"])

		state.set(errors.New("no room"), nil)
		alice.say("keep 5 lost")
		synctest.Wait()
		start := time.Now()
		require.NoError(t, b.Close())
		assert.Zero(t, time.Since(start), "the end waits for no better time")
		assert.Contains(t, log.String(), "no room")
		assert.NotContains(t, log.String(), "secret")
	})
}

// A State that is slow holds nobody up. Changes of one topic become one; when too
// many topics wait, their publishers are told.
func TestRetainedStateIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := &troubled{State: inbox.NewMemoryState(nil)}
		b := newBench(t, &Server{State: state, Limits: Limits{RetainedValues: 100}}, talk{})
		late := make(chan struct{})
		state.set(nil, late)
		alice := b.as("alice")
		alice.subscribe("#")
		for i := range 1000 {
			alice.say("keep a %d", i)
			alice.expect(fmt.Sprintf("a alice %d", i))
			if i == 0 {
				synctest.Wait() // it is being written, alone
			}
		}
		for i := range 99 {
			alice.say("keep %d x", i)
			alice.expect(fmt.Sprintf("%d alice x", i))
			alice.say("drop %d", i)
			alice.expect(fmt.Sprintf("%d alice ", i))
		}
		alice.say("keep 99 x")
		alice.expect("no overloaded")
		alice.say("keep 98 x") // it waits anyway
		alice.expect("98 alice x")
		close(late)
		synctest.Wait()
		assert.Less(t, state.puts, 110)
		assert.Equal(t, []string{"1 98 alice x", "1 a alice 999"}, kept(t, state))
		alice.say("keep 99 x")
		alice.expect("99 alice x")
	})
}

// What is damaged in the State is left out, and said to be.
func TestRetainedStateDamaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := inbox.NewMemoryState(nil)
		whole := (&retained{from: Address{Realm: 1, Name: "alice"}, data: []byte("x")}).encode()
		for key, value := range map[string][]byte{
			"\x01a": whole, "\x01b": whole[:10], "\x01c": nil, "": whole, "\x01d": append([]byte{9}, whole[1:]...), "\x01e": whole,
		} {
			require.NoError(t, state.Put(t.Context(), retainedBucket, key, value))
		}
		b, log := loud(t, &Server{State: state})
		alice := b.as("alice")
		alice.subscribe("#")
		alice.expect("a alice x (kept)", "e alice x (kept)")
		alice.silent()
		assert.Contains(t, log.String(), "damaged=4")
	})
}

func TestRetainedStateClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := inbox.NewMemoryState(nil)
		require.NoError(t, state.Close())
		b, log := loud(t, &Server{State: state})
		alice := b.as("alice")
		alice.say("keep a x")
		synctest.Wait()
		alice.subscribe("a")
		alice.expect("a alice x (kept)")
		require.NoError(t, b.Close())
		assert.Contains(t, log.String(), "reading")
	})
}

func FuzzDecodeRetained(f *testing.F) {
	for _, v := range []*retained{
		{},
		{from: Address{Realm: 1, Name: "alice"}, data: []byte("text")},
		{from: Address{Realm: 255, Name: strings.Repeat("x", 200)}, id: ID{1, 15: 2}, form: 3, flags: 4, data: make([]byte, 100)},
	} {
		f.Add(v.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, ok := decodeRetained(b)
		if !ok {
			return
		}
		again, ok := decodeRetained(v.encode())
		require.True(t, ok)
		require.Equal(t, v.from, again.from)
		require.Equal(t, v.id, again.id)
		require.Equal(t, [2]uint8{v.form, v.flags}, [2]uint8{again.form, again.flags})
		require.True(t, bytes.Equal(v.data, again.data))
		require.LessOrEqual(t, len(v.data)+len(v.from.Name)+21, len(b))
	})
}

func TestRetainedEncoding(t *testing.T) {
	v := &retained{from: Address{Realm: RealmNative, Name: "bob"}, id: ID{7: 9}, form: 2, flags: 6, data: []byte("text")}
	assert.Equal(t, "\x01\x05\x03bob"+string(v.id[:])+"\x02\x06text", string(v.encode()))
	got, ok := decodeRetained(v.encode())
	require.True(t, ok)
	assert.Equal(t, v, got)
	for n := range v.encode() {
		if n < len(v.encode())-len(v.data) {
			_, ok := decodeRetained(v.encode()[:n])
			assert.False(t, ok, n)
		}
	}
}
