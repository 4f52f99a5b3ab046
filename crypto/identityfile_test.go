package crypto

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/internal/race"
)

func withSeparateX25519(t testing.TB) *Identity {
	x, err := GenerateX25519()
	require.NoError(t, err)
	return generate(t).WithX25519(x)
}

func TestIdentityFileRoundTrip(t *testing.T) {
	for _, id := range []*Identity{generate(t), withSeparateX25519(t)} {
		dir := t.TempDir()
		path := filepath.Join(dir, "identity")
		require.NoError(t, id.Save(path))
		got, err := LoadIdentity(path)
		require.NoError(t, err)
		assert.True(t, got.equal(id))
		assert.Equal(t, id.X25519().Public(), got.X25519().Public())

		info, err := os.Stat(path)
		require.NoError(t, err)
		if runtime.GOOS != "windows" {
			assert.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
		}
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Len(t, entries, 1, "no temporary file is left")

		require.NoError(t, id.Save(path), "saving the same identity again")
		before, err := os.ReadFile(path)
		require.NoError(t, err)
		err = generate(t).Save(path)
		assert.ErrorIs(t, err, fs.ErrExist)
		assert.ErrorContains(t, err, path)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, before, after)
	}
}

func TestSaveLeavesForeignFilesAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes")
	require.NoError(t, os.WriteFile(path, []byte("notes\n"), 0o600))
	assert.ErrorContains(t, generate(t).Save(path), path)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "notes\n", string(b))

	missing := filepath.Join(t.TempDir(), "missing")
	err = generate(t).Save(filepath.Join(missing, "identity"))
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, "into "+missing+": ")
	assert.NotContains(t, err.Error(), ".identity-", "a name that nobody has given")
}

func TestLoadIdentityRefuses(t *testing.T) {
	good := string(withSeparateX25519(t).text())
	other := string(withSeparateX25519(t).text())
	lines, otherLines := strings.SplitAfter(good, "\n"), strings.SplitAfter(other, "\n")
	with := func(i int, line string) string {
		l := append([]string(nil), lines...)
		l[i] = line
		return strings.Join(l, "")
	}
	zero := strings.Repeat("0", 64) + "\n"
	cases := map[string]struct{ text, says string }{
		"empty":               {"", "no identity file"},
		"a PEM key":           {"-----BEGIN PRIVATE KEY-----\nMC4C\n", "no identity file"},
		"64 hex digits":       {strings.Repeat("ab", 32) + "\n", "no identity file"},
		"newer version":       {with(0, "sotto identity v2\n"), "no identity file"},
		"public key swapped":  {with(1, otherLines[1]), "damaged"},
		"seed swapped":        {with(2, otherLines[2]), "damaged"},
		"X25519 swapped":      {with(4, otherLines[4]), "damaged"},
		"X25519 key missing":  {with(4, ""), "damaged"},
		"seed missing":        {with(2, ""), "damaged"},
		"zero seed":           {with(2, labelSeed+" "+zero), "zero"},
		"zero X25519 key":     {with(4, labelX25519Priv+" "+zero), "damaged"},
		"X25519 key as seed":  {with(2, labelSeed+strings.TrimPrefix(lines[4], labelX25519Priv)), "damaged"},
		"seed as X25519 key":  {with(4, labelX25519Priv+strings.TrimPrefix(lines[2], labelSeed)), "damaged"},
		"repeated line":       {good + lines[2], "damaged"},
		"unknown line":        {good + "name alice\n", "damaged"},
		"garbage at the end":  {good + "\x00", "damaged"},
		"lines exchanged":     {lines[0] + lines[2] + lines[1], "damaged"},
		"CR LF":               {strings.ReplaceAll(good, "\n", "\r\n"), "no identity file"},
		"upper case":          {with(2, strings.ToUpper(lines[2])), "damaged"},
		"byte order mark":     {"\ufeff" + good, "no identity file"},
		"much too long":       {good + strings.Repeat("\n", 1<<20), "damaged"},
		"one digit too short": {with(2, lines[2][:len(lines[2])-2]+"\n"), "damaged"},
	}
	for n := range len(good) {
		// Without the last two lines it is a whole file of another identity's form.
		if n != len(lines[0]+lines[1]+lines[2]) {
			cases["truncated to "+string(rune('0'+n/100))+string(rune('0'+n/10%10))+string(rune('0'+n%10))] = struct{ text, says string }{good[:n], ""}
		}
	}
	path := filepath.Join(t.TempDir(), "identity")
	for name, c := range cases {
		require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
		_, err := LoadIdentity(path)
		require.Error(t, err, name)
		assert.ErrorContains(t, err, path, name)
		assert.ErrorContains(t, err, c.says, name)
		assert.False(t, errors.Is(err, fs.ErrNotExist), name)
		for _, line := range append(lines[1:], otherLines[1:]...) {
			if _, secret, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				assert.NotContains(t, err.Error(), secret, name)
			}
		}
		_, err = LoadOrCreateIdentity(path)
		assert.Error(t, err, name)
	}
}

func TestLoadIdentityFlippedBits(t *testing.T) {
	if race.Enabled {
		t.Skip("nothing in it is concurrent")
	}
	t.Parallel()
	id := withSeparateX25519(t)
	text := id.text()
	flipEachBit(text, func(bit int, b []byte) {
		// X25519 ignores five bits of a private key: what is left is the same key.
		if got, err := parseIdentity(b); err == nil {
			assert.Equal(t, id.Public(), got.Public(), "bit %d", bit)
			assert.Equal(t, id.X25519().Public(), got.X25519().Public(), "bit %d", bit)
		}
	})
}

func TestLoadIdentityPermissions(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no permission bits")
	}
	path := filepath.Join(t.TempDir(), "identity")
	id := generate(t)
	require.NoError(t, id.Save(path))
	for _, mode := range []fs.FileMode{0o640, 0o604, 0o620, 0o602, 0o610, 0o666, 0o777} {
		require.NoError(t, os.Chmod(path, mode))
		_, err := LoadIdentity(path)
		assert.ErrorContains(t, err, path, mode)
		assert.ErrorContains(t, err, "chmod 600", mode)
		assert.Error(t, id.Save(path), mode)
	}
	require.NoError(t, os.Chmod(path, 0o400))
	_, err := LoadIdentity(path)
	assert.NoError(t, err)

	_, err = LoadIdentity(t.TempDir())
	assert.ErrorContains(t, err, "it is a directory", "and nothing about its mode")

	path = filepath.Join(t.TempDir(), "none", "identity")
	_, err = LoadOrCreateIdentity(path)
	assert.ErrorContains(t, err, path+": ", "not only a temporary name")
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestLoadOrCreateIdentityConcurrently(t *testing.T) {
	path := filepath.Join(t.TempDir(), "identity")
	ids := make([]*Identity, 32)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			id, err := LoadOrCreateIdentity(path)
			if assert.NoError(t, err) {
				ids[i] = id
			}
		})
	}
	wg.Wait()
	again, err := LoadOrCreateIdentity(path)
	require.NoError(t, err)
	for _, id := range ids {
		require.NotNil(t, id)
		assert.True(t, again.equal(id))
	}
}

func FuzzParseIdentity(f *testing.F) {
	f.Add(generate(f).text())
	f.Add(withSeparateX25519(f).text())
	f.Add([]byte(fileVersion + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if id, err := parseIdentity(text); err == nil {
			require.Equal(t, string(text), string(id.text()))
		}
	})
}
