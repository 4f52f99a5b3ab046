package crypto

import (
	"encoding/base64"
	"net/netip"
	"strconv"
	"strings"
)

// A pairing string (native.md "Sealing") is
//
//	sotto://<key>@<host>[:<port>][/<path>]?[relay=<key>&][card=<serial>&]tls=<0 or 1>
//
// in at most 1,024 bytes, with keys in base64url without padding, the serial in
// decimal, and the parameters in this order. There is one way to write each.
const (
	pairingScheme = "sotto://"
	maxPairing    = 1024
)

// A Pairing says who somebody is and at which relay, to be shown to others as a
// text or a picture. It has no secrets, but who can change it on the way can put
// himself in its place.
type Pairing struct {
	Key  PublicKey // who it is
	Host string    // of the relay: a name in lower case, an IPv4 address or an IPv6 address in [], and :port if it is not the default
	Path string    // at the relay, which begins with a slash, or empty
	TLS  bool      // whether the connection to the relay is encrypted

	// Relay is the key that the relay must have; zero: it is not said.
	Relay PublicKey

	// Card is the serial of a card that there is: one with a lower serial, or none,
	// is not to be taken for an answer. Zero: it is not said.
	Card uint64
}

// String returns the pairing string. If a field is not as it says, the result is
// not one.
func (p Pairing) String() string {
	var b strings.Builder
	b.WriteString(pairingScheme + keyText(p.Key) + "@" + p.Host + p.Path + "?")
	if p.Relay != (PublicKey{}) {
		b.WriteString("relay=" + keyText(p.Relay) + "&")
	}
	if p.Card > 0 {
		b.WriteString("card=" + strconv.FormatUint(p.Card, 10) + "&")
	}
	if p.TLS {
		b.WriteString("tls=1")
	} else {
		b.WriteString("tls=0")
	}
	return b.String()
}

// URL returns the address of the relay over WebSocket: wss, or ws without TLS.
func (p Pairing) URL() string {
	if p.TLS {
		return "wss://" + p.Host + p.Path
	}
	return "ws://" + p.Host + p.Path
}

// ParsePairing reads what [Pairing.String] writes, and nothing else: anything else
// is [ErrMalformed]. A key that [PublicKey.Check] refuses is [ErrWeakKey].
func ParsePairing(s string) (Pairing, error) {
	rest, ours := strings.CutPrefix(s, pairingScheme)
	name, rest, named := strings.Cut(rest, "@")
	where, parameters, asked := strings.Cut(rest, "?")
	if !ours || !named || !asked || len(s) > maxPairing {
		return Pairing{}, ErrMalformed
	}
	var p Pairing
	var err error
	if p.Key, err = parseKeyText(name); err != nil {
		return Pairing{}, err
	}
	slash := strings.IndexByte(where+"/", '/')
	p.Host, p.Path = where[:slash], where[slash:]
	if !isHostPort(p.Host) || !isPath(p.Path) {
		return Pairing{}, ErrMalformed
	}
	for parameter := range strings.SplitSeq(parameters, "&") {
		switch key, value, _ := strings.Cut(parameter, "="); key {
		case "relay":
			p.Relay, err = parseKeyText(value)
		case "card":
			p.Card, err = strconv.ParseUint(value, 10, 64)
		case "tls":
			p.TLS = value == "1"
		}
		if err == ErrWeakKey {
			return Pairing{}, err
		}
	}
	if p.String() != s { // unknown, repeated or missing parameters, another order or form
		return Pairing{}, ErrMalformed
	}
	return p, nil
}

func keyText(k PublicKey) string { return base64.RawURLEncoding.EncodeToString(k[:]) }

func parseKeyText(s string) (PublicKey, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != 32 || keyText(PublicKey(b)) != s {
		return PublicKey{}, ErrMalformed
	}
	return PublicKey(b), PublicKey(b).Check()
}

// isHostPort says whether s is a host as in a URL, with or without a port.
func isHostPort(s string) bool {
	host, port, hasPort := s, "", false
	if i := strings.LastIndexByte(s, ':'); i > strings.LastIndexByte(s, ']') {
		host, port, hasPort = s[:i], s[i+1:], true
	}
	if n, err := strconv.ParseUint(port, 10, 16); hasPort && (err != nil || n == 0 || port[0] == '0') {
		return false
	}
	if inside, ok := strings.CutPrefix(host, "["); ok {
		inside, ok = strings.CutSuffix(inside, "]")
		a, err := netip.ParseAddr(inside)
		return ok && err == nil && a.Is6() && a.Zone() == "" && a.String() == inside
	}
	return len(host) > 0 && len(host) <= 253 && consistsOf(host, "-.") && host == strings.ToLower(host)
}

// isPath says whether s is a path without escapes, and without what is left out of
// one on the way.
func isPath(s string) bool {
	for part := range strings.SplitSeq(s, "/") {
		if part == "." || part == ".." {
			return false
		}
	}
	return consistsOf(s, "/-._~!$&'()*+,;=:@")
}

// consistsOf says whether s has ASCII letters, digits and those others only.
func consistsOf(s, others string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return true
}
