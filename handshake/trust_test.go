package handshake

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func trustStores(t *testing.T) map[string]TrustStore {
	return map[string]TrustStore{
		"memory": new(MemoryTrust),
		"file":   NewFileTrust(filepath.Join(t.TempDir(), "known_relays")),
	}
}

func TestTrustStores(t *testing.T) {
	k1, k2 := testIdentity(t, 1).Public(), testIdentity(t, 2).Public()
	for name, s := range trustStores(t) {
		t.Run(name, func(t *testing.T) {
			_, ok, err := s.Lookup("wss://a.example/")
			require.NoError(t, err)
			require.False(t, ok)

			require.NoError(t, s.Remember("wss://a.example/", k1))
			require.NoError(t, s.Remember("wss://b.example/", k2))
			require.NoError(t, s.Remember("wss://a.example/", k1), "again")

			var mismatch *KeyMismatchError
			require.ErrorAs(t, s.Remember("wss://a.example/", k2), &mismatch)
			assert.Equal(t, KeyMismatchError{Want: k1, Got: k2}, *mismatch)
			assert.Contains(t, mismatch.Error(), k1.String())
			assert.Contains(t, mismatch.Error(), k2.String())

			for address, want := range map[string]crypto.PublicKey{"wss://a.example/": k1, "wss://b.example/": k2} {
				key, ok, err := s.Lookup(address)
				require.NoError(t, err)
				assert.True(t, ok)
				assert.Equal(t, want, key)
			}
			_, ok, _ = s.Lookup("wss://a.example")
			assert.False(t, ok, "addresses are compared as they are")

			for _, bad := range []string{"", "a b", "a\nb", "a\tb", "a\x00", "a\u00a0b", "a\u0085", "\xff"} {
				assert.Error(t, s.Remember(bad, k1), "%q", bad)
			}
		})
	}
}

func TestTrustStoresConcurrently(t *testing.T) {
	const n = 8
	var keys [n]crypto.PublicKey
	for i := range keys {
		keys[i] = testIdentity(t, byte(i+1)).Public()
	}
	for name, s := range trustStores(t) {
		t.Run(name, func(t *testing.T) {
			var wg sync.WaitGroup
			var first [n]error
			for i := range n {
				wg.Go(func() {
					first[i] = s.Remember("contested", keys[i])
					assert.NoError(t, s.Remember(fmt.Sprint("own", i), keys[i]))
					_, _, err := s.Lookup("contested")
					assert.NoError(t, err)
				})
			}
			wg.Wait()
			winners := 0
			for i := range n {
				key, ok, err := s.Lookup(fmt.Sprint("own", i))
				require.NoError(t, err)
				assert.True(t, ok)
				assert.Equal(t, keys[i], key)
				if first[i] == nil {
					winners++
					key, _, _ = s.Lookup("contested")
					assert.Equal(t, keys[i], key)
				}
			}
			assert.Equal(t, 1, winners, "the first key stays")
		})
	}
}

func TestFileTrust(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "known_relays")
	key := testIdentity(t, 1).Public()
	require.NoError(t, NewFileTrust(path).Remember("wss://a.example/", key))
	require.NoError(t, NewFileTrust(path).Remember("wss://b.example/", key))

	content, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf("wss://a.example/ %v\nwss://b.example/ %v\n", key, key), string(content))
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 1, "no temporary file is left")

	// An operator lifts an entry by deleting the line.
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, ok, err := NewFileTrust(path).Lookup("wss://a.example/")
	require.NoError(t, err)
	assert.False(t, ok)
}

func TestFileTrustRefusesFile(t *testing.T) {
	key := testIdentity(t, 1).Public().String()
	for name, content := range map[string]string{
		"empty line":       "\n",
		"address alone":    "wss://a.example/\n",
		"two spaces":       "wss://a.example/  " + key + "\n",
		"short key":        "wss://a.example/ " + key[1:] + "\n",
		"upper case":       "wss://a.example/ " + strings.ToUpper(key) + "\n",
		"something behind": "wss://a.example/ " + key + " v2\n",
		"no newline":       "wss://a.example/ " + key,
		"carriage return":  "wss://a.example/ " + key + "\r\n",
		"no address":       " " + key + "\n",
		"an address twice": "a " + key + "\na " + key + "\n",
		"byte order mark":  "\xff\xfea " + key + "\n",
		"zeros":            string(make([]byte, 512)),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "known_relays")
			require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
			s := NewFileTrust(path)
			_, ok, err := s.Lookup("a")
			require.ErrorContains(t, err, path)
			assert.False(t, ok)
			require.ErrorContains(t, s.Remember("b", crypto.PublicKey{}), path)
			_, err = Expect(nil, s, "a")
			require.ErrorContains(t, err, path)

			after, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, content, string(after), "left for the operator to see")
		})
	}

	t.Run("a directory", func(t *testing.T) {
		path := t.TempDir()
		_, _, err := NewFileTrust(path).Lookup("a")
		require.ErrorContains(t, err, path)
	})
	t.Run("no directory", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "none", "known_relays")
		require.ErrorContains(t, NewFileTrust(path).Remember("a", crypto.PublicKey{}), filepath.Dir(path))
	})
	t.Run("cannot be replaced", func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "known_relays")
		require.NoError(t, os.Mkdir(path, 0o700))
		require.Error(t, NewFileTrust(path).Remember("a", crypto.PublicKey{}))
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Len(t, entries, 1, "no temporary file is left")
	})
}

func TestExpect(t *testing.T) {
	pin, seen := testIdentity(t, 1).Public(), testIdentity(t, 2).Public()
	store := new(MemoryTrust)
	require.NoError(t, store.Remember("seen", seen))
	for _, c := range []struct {
		name    string
		pin     *crypto.PublicKey
		store   TrustStore
		address string
		want    *crypto.PublicKey
	}{
		{"nothing known", nil, nil, "seen", nil},
		{"first contact", nil, store, "new", nil},
		{"seen", nil, store, "seen", &seen},
		{"pinned", &pin, nil, "seen", &pin},
		{"the pin counts", &pin, store, "seen", &pin},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Expect(c.pin, c.store, c.address)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}
