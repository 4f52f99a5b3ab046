package jsonmsg_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay/dialect/jsonmsg"
)

type forgetful interface {
	jsonmsg.PinStore
	Forget(address string) error
}

func pinStores(t *testing.T) map[string]forgetful {
	return map[string]forgetful{
		"memory": new(jsonmsg.MemoryPins),
		"file":   jsonmsg.NewFilePins(filepath.Join(t.TempDir(), "pins")),
	}
}

func TestPinStores(t *testing.T) {
	k1, k2 := newKey(t).Public(), newKey(t).Public()
	for name, s := range pinStores(t) {
		t.Run(name, func(t *testing.T) {
			addresses := []string{"bob", "bob ", " bob", "the baker", "ba\u0301ker", "b\u00e1ker", "\u2028"}
			for _, a := range addresses {
				_, ok, err := s.Lookup(a)
				require.NoError(t, err)
				require.False(t, ok, "%q", a)
				require.NoError(t, s.Remember(a, k1))
				require.NoError(t, s.Remember(a, k1), "again")
			}
			err := s.Remember("bob", k2)
			assert.Equal(t, &jsonmsg.KeyChangedError{Peer: "bob", Pinned: k1, Got: k2}, err)
			assert.ErrorContains(t, err, k1.String())
			assert.ErrorContains(t, err, k2.String())
			require.NoError(t, s.Forget("bob"))
			require.NoError(t, s.Forget("bob"), "again")
			require.NoError(t, s.Remember("bob", k2))
			for _, a := range addresses {
				key, ok, err := s.Lookup(a)
				require.NoError(t, err)
				assert.True(t, ok)
				assert.Equal(t, a == "bob", key == k2, "%q", a)
			}
		})
	}
}

func TestPinStoresConcurrently(t *testing.T) {
	const n = 8
	var keys [n]crypto.X25519Key
	for i := range keys {
		keys[i] = newKey(t).Public()
	}
	for name, s := range pinStores(t) {
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

// TestPinStoresFull: strangers do not fill the memory.
func TestPinStoresFull(t *testing.T) {
	key := newKey(t).Public()
	path := filepath.Join(t.TempDir(), "pins")
	var lines strings.Builder
	m := new(jsonmsg.MemoryPins)
	for i := range 10_000 {
		fmt.Fprintf(&lines, "%v peer%d\n", key, i)
		require.NoError(t, m.Remember(fmt.Sprint("peer", i), key))
	}
	require.NoError(t, os.WriteFile(path, []byte(lines.String()), 0o600))
	for name, s := range map[string]forgetful{"memory": m, "file": jsonmsg.NewFilePins(path)} {
		assert.Error(t, s.Remember("one more", key), name)
		require.NoError(t, s.Remember("peer0", key), name)
		require.NoError(t, s.Forget("peer0"), name)
		assert.NoError(t, s.Remember("one more", key), name)
	}
}

func TestFilePins(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pins")
	key := newKey(t).Public()
	require.NoError(t, jsonmsg.NewFilePins(path).Remember("bob", key))
	require.NoError(t, jsonmsg.NewFilePins(path).Remember("the baker", key))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf("%v bob\n%v the baker\n", key, key), string(content))
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 1, "no temporary file is left")
	require.NoError(t, jsonmsg.NewFilePins(path).Forget("bob"))
	content, err = os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf("%v the baker\n", key), string(content))
	for _, bad := range []string{"", "a\nb", "a\x00", "a\u0085", "\xff", strings.Repeat("a", 129)} {
		assert.Error(t, jsonmsg.NewFilePins(path).Remember(bad, key), "%q", bad)
	}
	assert.Error(t, jsonmsg.NewFilePins(filepath.Join(dir, "none", "pins")).Remember("bob", key), "no directory")
}

// TestFilePinsRefusesFile: also an Ed25519 key, as other files have them, where an
// X25519 key is wanted (case CR-12).
func TestFilePinsRefusesFile(t *testing.T) {
	key := newKey(t).Public().String()
	ed := newIdentity(t).Public()
	for name, content := range map[string]string{
		"empty line":       "\n",
		"key alone":        key + "\n",
		"no address":       key + " \n",
		"short key":        key[1:] + " bob\n",
		"key of 31 bytes":  base64.StdEncoding.EncodeToString(ed[1:]) + " bob\n",
		"an Ed25519 key":   ed.String() + " bob\n",
		"as known relays":  "bob " + ed.String() + "\n",
		"no newline":       key + " bob",
		"carriage return":  key + " bob\r\n",
		"an address twice": key + " bob\n" + key + " bob\n",
		"byte order mark":  "\ufeff" + key + " bob\n",
		"zeros":            string(make([]byte, 512)),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "pins")
			require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
			s := jsonmsg.NewFilePins(path)
			_, ok, err := s.Lookup("bob")
			require.ErrorContains(t, err, path)
			assert.False(t, ok)
			require.ErrorContains(t, s.Remember("carl", crypto.X25519Key{}), path)
			require.ErrorContains(t, s.Forget("bob"), path)
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, content, string(after), "left for a person to see")
		})
	}
}

func TestSharedKey(t *testing.T) {
	secret := []byte(strings.Repeat("k", 32))
	key, err := jsonmsg.NewSharedKey(secret)
	require.NoError(t, err)
	other, err := jsonmsg.NewSharedKey([]byte(strings.Repeat("l", 32)))
	require.NoError(t, err)
	for _, text := range []string{"", "hello"} {
		ct, err := key.Seal("hall", []byte(text))
		require.NoError(t, err)
		data, err := key.Open("hall", ct)
		require.NoError(t, err)
		assert.Equal(t, text, string(data))
		_, err = key.Open("attic", ct)
		assert.ErrorIs(t, err, crypto.ErrOpen)
		_, err = other.Open("hall", ct)
		assert.ErrorIs(t, err, crypto.ErrOpen)
		again, err := key.Seal("hall", []byte(text))
		require.NoError(t, err)
		assert.NotEqual(t, ct, again)
		for i := range ct {
			b := []byte(ct)
			b[i] ^= 1
			_, err := key.Open("hall", string(b))
			assert.Error(t, err, "%d", i)
		}
	}
	for _, bad := range []string{"", "hello", strings.Repeat("A", 52), strings.Repeat("A", 53) + "\n==="} {
		_, err := key.Open("hall", bad)
		assert.ErrorIs(t, err, crypto.ErrMalformed, "%q", bad)
	}
	for _, n := range []int{0, 31, 33} {
		_, err := jsonmsg.NewSharedKey(make([]byte, n))
		assert.ErrorIs(t, err, crypto.ErrMalformed)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		shown := fmt.Sprintf(verb, key)
		assert.NotContains(t, shown, "kkkk")
		assert.NotContains(t, shown, "6b6b")
		assert.NotContains(t, shown, "107 107")
	}
	// Made with PyNaCl: SecretBox(hmac.digest(b"k" * 32, b"sotto shared key v1\0hall", "sha256")).encrypt(b"hello", bytes(range(24))).
	data, err := key.Open("hall", madeWithPyNaCl)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(data))
}

const madeWithPyNaCl = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYX/VSsoxGSat6UHFGByx9UOl0YtuCR"
