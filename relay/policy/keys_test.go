package policy_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/relay/policy"
	"github.com/sotto-relay/sotto/transport"
)

func identity(t testing.TB, n byte) *crypto.Identity {
	t.Helper()
	id, err := crypto.IdentityFromSeed(bytes.Repeat([]byte{n}, 32))
	require.NoError(t, err)
	return id
}

func key(t testing.TB, n byte) crypto.PublicKey { return identity(t, n).Public() }

// ask returns what a policy has to say to a key: nil is welcome.
func ask(t testing.TB, p relay.Policy, k crypto.PublicKey) error {
	t.Helper()
	_, err := p.Claim(t.Context(), relay.ClaimInfo{Address: address(string(k[:]))})
	return err
}

func TestAllowKeys(t *testing.T) {
	a, b, c := key(t, 1), key(t, 2), key(t, 3)
	p := policy.AllowKeys(a, b, a)
	assert.NoError(t, ask(t, p, a))
	assert.NoError(t, ask(t, p, b))
	for name, addr := range map[string]relay.Address{
		"another key":   address(string(c[:])),
		"hex of a key":  address(a.String()),
		"too short":     address(string(a[:31])),
		"too long":      address(string(a[:]) + "x"),
		"no name":       {},
		"another realm": {Realm: relay.RealmBrep + 1, Name: string(a[:])},
	} {
		_, err := p.Claim(t.Context(), relay.ClaimInfo{Address: addr})
		assert.Equal(t, "denied: this key may not log in here", line(err), name)
	}
	assert.Error(t, ask(t, policy.AllowKeys(), a))
}

// TestAllowKeysOverBrep: a key that is not allowed is told so, and that it need
// not try again.
func TestAllowKeysOverBrep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &relay.Server{Policy: policy.AllowKeys(key(t, 1)), Logger: slog.New(slog.DiscardHandler)}
		defer srv.Close()
		dialect := brep.Dialect{Identity: identity(t, 200)}
		c, err := brep.Connect(t.Context(), srv.Dial(dialect), &brep.ClientOptions{Identity: identity(t, 1)})
		require.NoError(t, err)
		defer c.Close()
		_, err = brep.Connect(t.Context(), srv.Dial(dialect), &brep.ClientOptions{Identity: identity(t, 2)})
		var re *brep.RelayError
		require.ErrorAs(t, err, &re)
		assert.EqualValues(t, relay.CodeDenied, re.Code)
		assert.True(t, re.Final())
		synctest.Wait()
		assert.Equal(t, 1, srv.Stats().Sessions)
	})
}

// A keyFile is a file of keys in a test.
type keyFile struct {
	t    testing.TB
	path string
}

func newKeyFile(t testing.TB, text string) keyFile {
	f := keyFile{t, filepath.Join(t.TempDir(), "keys")}
	f.write(text)
	return f
}

func (f keyFile) write(text string) {
	f.t.Helper()
	require.NoError(f.t, os.WriteFile(f.path, []byte(text), 0o600))
}

func TestKeyFile(t *testing.T) {
	a, b := key(t, 1), key(t, 2)
	for name, c := range map[string]struct {
		text string
		err  string // what follows the path; empty: a and b are allowed
	}{
		"two lines":       {a.String() + "\n" + b.String() + "\n", ""},
		"no last newline": {a.String() + "\n" + b.String(), ""},
		"twice":           {a.String() + "\n" + a.String() + "\n" + b.String(), ""},
		"comments":        {"# ours\n\n \t" + a.String() + " # ann\n" + b.String() + "#bob\n#" + key(t, 3).String(), ""},
		"CRLF":            {a.String() + "\r\n\r\n" + b.String() + "\r\n", ""},
		"upper case":      {strings.ToUpper(a.String()) + "\n" + b.String(), ""},
		"short":           {a.String() + "\n\n" + b.String()[1:], "line 3: not a key of 64 hex digits"},
		"long":            {a.String() + "00", "line 1: not a key of 64 hex digits"},
		"two in a line":   {a.String() + " " + b.String(), "line 1: not a key of 64 hex digits"},
		"a secret":        {"seed: hunter2", "line 1: not a key of 64 hex digits"},
		"binary":          {"\x00\xff", "line 1: not a key of 64 hex digits"},
	} {
		t.Run(name, func(t *testing.T) {
			file := newKeyFile(t, c.text)
			f, err := policy.OpenKeyFile(file.path)
			if c.err != "" {
				require.EqualError(t, err, "policy: "+file.path+": "+c.err)
				return
			}
			require.NoError(t, err)
			assert.NoError(t, ask(t, f.Policy(), a))
			assert.NoError(t, ask(t, f.Policy(), b))
			assert.Error(t, ask(t, f.Policy(), key(t, 3)))
		})
	}
	_, err := policy.OpenKeyFile(filepath.Join(t.TempDir(), "missing"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestReload(t *testing.T) {
	a, b, c := key(t, 1), key(t, 2), key(t, 3)
	file := newKeyFile(t, a.String()+"\n"+b.String())
	f, err := policy.OpenKeyFile(file.path)
	require.NoError(t, err)
	p := f.Policy()

	file.write(b.String() + "\n" + c.String())
	assert.NoError(t, ask(t, p, a), "not read yet")
	removed, err := f.Reload()
	require.NoError(t, err)
	assert.Equal(t, []crypto.PublicKey{a}, removed)
	assert.Error(t, ask(t, p, a))
	assert.NoError(t, ask(t, p, b))
	assert.NoError(t, ask(t, p, c))

	file.write(a.String() + "\nbroken")
	removed, err = f.Reload()
	assert.Error(t, err)
	assert.Empty(t, removed)
	require.NoError(t, os.Remove(file.path))
	removed, err = f.Reload()
	assert.ErrorIs(t, err, os.ErrNotExist)
	assert.Empty(t, removed)
	assert.Error(t, ask(t, p, a), "the old set stays")
	assert.NoError(t, ask(t, p, b))

	file.write("# nobody\n")
	removed, err = f.Reload()
	require.NoError(t, err)
	assert.ElementsMatch(t, []crypto.PublicKey{b, c}, removed)
	assert.Error(t, ask(t, p, b))
}

// TestWatch: a change is read once, when it has stayed for a second. File times
// are of the real clock, so they are set here.
func TestWatch(t *testing.T) {
	a, b := key(t, 1), key(t, 2)
	file := newKeyFile(t, a.String())
	f, err := policy.OpenKeyFile(file.path)
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		type reload struct {
			removed []crypto.PublicKey
			err     error
		}
		reloads := make(chan reload, 10)
		go func() {
			defer close(reloads)
			f.Watch(ctx, func(r []crypto.PublicKey, err error) { reloads <- reload{r, err} })
		}()
		write := func(text string, second int64) {
			file.write(text)
			require.NoError(t, os.Chtimes(file.path, time.Time{}, time.Unix(second, 0)))
		}
		// within is how many reloads there have been after d.
		within := func(d time.Duration) int {
			time.Sleep(d)
			synctest.Wait()
			return len(reloads)
		}
		assert.Zero(t, within(time.Minute+time.Second/2))

		for i := range int64(5) { // being written
			write(b.String()[:10*i], 100+i)
			assert.Zero(t, within(time.Second))
		}
		write(b.String(), 200)
		assert.Equal(t, 0, within(time.Second))
		assert.Equal(t, 1, within(time.Second))
		assert.Equal(t, 1, within(time.Minute))
		assert.Equal(t, reload{[]crypto.PublicKey{a}, nil}, <-reloads)
		assert.NoError(t, ask(t, f.Policy(), b))

		other := newKeyFile(t, a.String()) // of the same size and time
		require.NoError(t, os.Chtimes(other.path, time.Time{}, time.Unix(200, 0)))
		require.NoError(t, os.Rename(other.path, file.path))
		assert.Equal(t, 1, within(time.Minute))
		assert.Equal(t, reload{[]crypto.PublicKey{b}, nil}, <-reloads)

		write("broken", 300)
		assert.Equal(t, 1, within(time.Minute))
		assert.ErrorContains(t, (<-reloads).err, "line 1")
		require.NoError(t, os.Remove(file.path))
		assert.Equal(t, 1, within(time.Minute))
		assert.ErrorIs(t, (<-reloads).err, os.ErrNotExist)
		assert.NoError(t, ask(t, f.Policy(), a), "the old set stays")

		write(b.String(), 300)
		assert.Equal(t, 1, within(time.Minute))
		assert.NoError(t, (<-reloads).err)

		write(a.String(), 400)
		_, err := f.Reload() // the program was faster
		require.NoError(t, err)
		assert.Zero(t, within(time.Minute))
		cancel()
		_, open := <-reloads
		assert.False(t, open)
	})
}

// TestRevocation: who is not in the file any more has to go, and stays away.
func TestRevocation(t *testing.T) {
	file := newKeyFile(t, key(t, 1).String())
	f, err := policy.OpenKeyFile(file.path)
	require.NoError(t, err)
	bubble(t, f.Policy(), func(t *testing.T, r *rig) {
		k := key(t, 1)
		p := r.login(string(k[:]))
		file.write("# nobody\n")
		removed, err := f.Reload()
		require.NoError(t, err)
		for _, k := range removed {
			assert.Equal(t, 1, r.Kick(relay.Match{Address: address(string(k[:]))}, &relay.Refusal{Code: relay.CodeDenied}))
		}
		p.expectEnd("denied: denied", transport.ClosePolicy)
		p = r.dial("")
		p.say("claim " + string(k[:]))
		p.expectEnd("denied: this key may not log in here", transport.ClosePolicy)
	})
}

func TestKnown(t *testing.T) {
	f, err := policy.OpenKeyFile(newKeyFile(t, key(t, 1).String()).path)
	require.NoError(t, err)
	for i, want := range map[byte]bool{1: true, 2: false} {
		known, err := f.Known(t.Context(), key(t, i))
		require.NoError(t, err)
		assert.Equal(t, want, known)
	}
}
