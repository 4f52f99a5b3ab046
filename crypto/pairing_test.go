package crypto

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The keys of the test vectors: seeds of 01 and of 02.
const (
	pairingKey   = "iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w"
	pairingRelay = "gTl3Dqh9F19Wo1Rmw0x-zMuNipG07jeiXfYPW4_Js5Q"
)

func TestPairing(t *testing.T) {
	key := identity(t, []byte(strings.Repeat("\x01", 32))).Public()
	relay := identity(t, []byte(strings.Repeat("\x02", 32))).Public()
	for want, c := range map[string]struct {
		p   Pairing
		url string
	}{
		"sotto://" + pairingKey + "@relay.example/brep?relay=" + pairingRelay + "&card=7&tls=1": {
			Pairing{Key: key, Host: "relay.example", Path: "/brep", TLS: true, Relay: relay, Card: 7}, "wss://relay.example/brep"},
		"sotto://" + pairingKey + "@127.0.0.1:8080?tls=0": {
			Pairing{Key: key, Host: "127.0.0.1:8080"}, "ws://127.0.0.1:8080"},
		"sotto://" + pairingKey + "@[2001:db8::1]:65535/?card=18446744073709551615&tls=1": {
			Pairing{Key: key, Host: "[2001:db8::1]:65535", Path: "/", TLS: true, Card: math.MaxUint64}, "wss://[2001:db8::1]:65535/"},
		"sotto://" + pairingKey + "@[::1]/a/b-c._~!$&'()*+,;=:@?relay=" + pairingRelay + "&tls=0": {
			Pairing{Key: key, Host: "[::1]", Path: "/a/b-c._~!$&'()*+,;=:@", Relay: relay}, "ws://[::1]/a/b-c._~!$&'()*+,;=:@"},
	} {
		assert.Equal(t, want, c.p.String())
		assert.Equal(t, c.url, c.p.URL())
		p, err := ParsePairing(want)
		require.NoError(t, err, want)
		assert.Equal(t, c.p, p)
	}
}

func TestPairingRefuses(t *testing.T) {
	good := "sotto://" + pairingKey + "@relay.example:1/brep?relay=" + pairingRelay + "&card=7&tls=1"
	_, err := ParsePairing(good)
	require.NoError(t, err)
	replaced := func(old, new string) string {
		require.Contains(t, good, old)
		return strings.Replace(good, old, new, 1)
	}
	weak := strings.Repeat("A", 43)
	for _, s := range []string{
		"", "sotto://", "x" + good, " " + good, good + " ", good + "\n", good + "&", good + "#f", good + "&x=1", good + "&tls=1",
		replaced("sotto", "SOTTO"), replaced("://", ":"), replaced("@", ""), replaced(pairingKey, ""),
		replaced(pairingKey, pairingKey+"="), replaced(pairingKey, pairingKey[:42]), replaced(pairingKey, pairingKey[:42]+"x"),
		replaced(pairingKey, "+"+pairingKey[1:]), replaced("iojj", "iojj\n"), replaced(pairingKey, pairingKey+":x"),
		replaced("relay.example", ""), replaced("relay.example", "Relay.example"), replaced("relay.example", "é.example"),
		replaced("relay.example", "a@b"), replaced("relay.example", "a b"), replaced("relay.example", "::1"),
		replaced("relay.example", "[::1"), replaced("relay.example", "[0::1]"), replaced("relay.example", "[fe80::1%25a]"),
		replaced("relay.example", "[127.0.0.1]"), replaced("relay.example", "a%2fb"), replaced("relay.example", strings.Repeat("a", 254)),
		replaced(":1/", ":/"), replaced(":1/", ":0/"), replaced(":1/", ":01/"), replaced(":1/", ":65536/"), replaced(":1/", ":-1/"),
		replaced(":1/", ":1:1/"), replaced("/brep", "/br%65p"), replaced("/brep", "/../brep"), replaced("/brep", "/."),
		replaced("/brep", "/b\\p"), replaced("/brep", "/é"), replaced("/brep", "/"+strings.Repeat("a", 1024)),
		replaced("?", ""), replaced("relay=", "RELAY="), replaced("relay="+pairingRelay, "relay="), replaced("relay="+pairingRelay+"&", "relay&"),
		replaced("card=7", "card=0"), replaced("card=7", "card=07"), replaced("card=7", "card=+7"), replaced("card=7", "card=18446744073709551616"),
		replaced("card=7", "card="), replaced("card=7", "card=7&card=7"), replaced("card=7&tls=1", "tls=1&card=7"),
		replaced("&tls=1", ""), replaced("tls=1", "tls=2"), replaced("tls=1", "tls=true"), replaced("tls=1", "tls="), replaced("tls=1", "tls=01"),
		replaced("&card", "&amp;card"), replaced("relay=", "relay=%67"),
	} {
		_, err := ParsePairing(s)
		assert.ErrorIs(t, err, ErrMalformed, "%q", s)
	}
	for _, key := range []string{pairingKey, pairingRelay} {
		_, err := ParsePairing(replaced(key, weak))
		assert.ErrorIs(t, err, ErrWeakKey)
	}
}

// FuzzParsePairing: what parses is written again as it was.
func FuzzParsePairing(f *testing.F) {
	f.Add("sotto://" + pairingKey + "@relay.example:1/brep?relay=" + pairingRelay + "&card=7&tls=1")
	f.Add("sotto://" + pairingKey + "@[::1]?tls=0")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePairing(s)
		if err != nil {
			require.Zero(t, p)
			return
		}
		require.Equal(t, s, p.String())
		require.NoError(t, p.Key.Check())
		require.NotEmpty(t, p.Host)
	})
}
