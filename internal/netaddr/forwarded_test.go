package netaddr

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestForwarded(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:1::/48")}
	proxy := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}
	for _, test := range []struct {
		name  string
		peer  net.Addr
		lists []string
		want  string // "" for the peer
	}{
		{"no header", proxy, nil, ""},
		{"one", proxy, []string{"192.0.2.1"}, "192.0.2.1:0"},
		{"right-most", proxy, []string{"192.0.2.7, 192.0.2.1"}, "192.0.2.1:0"},
		{"right-most untrusted", proxy, []string{"192.0.2.7, 192.0.2.1,10.2.2.2 ,\t10.3.3.3"}, "192.0.2.1:0"},
		{"all trusted", proxy, []string{"10.4.4.4, 10.3.3.3"}, "10.4.4.4:0"},
		{"several headers", proxy, []string{"192.0.2.7", "192.0.2.1", "10.3.3.3"}, "192.0.2.1:0"},
		{"untrusted peer", &net.TCPAddr{IP: net.IPv4(192, 0, 2, 9)}, []string{"192.0.2.1"}, ""},
		{"IPv4 peer in IPv6", &net.TCPAddr{IP: net.ParseIP("::ffff:10.0.0.1")}, []string{"192.0.2.1"}, "192.0.2.1:0"},
		{"Unix peer", &net.UnixAddr{Name: "@"}, []string{"192.0.2.1"}, ""},
		{"garbage", proxy, []string{"192.0.2.7, unknown"}, ""},
		{"garbage stops", proxy, []string{"192.0.2.7, _hidden, 10.3.3.3"}, "10.3.3.3:0"},
		{"garbage further left", proxy, []string{"<script>, 192.0.2.1"}, "192.0.2.1:0"},
		{"empty", proxy, []string{""}, ""},
		{"empty element", proxy, []string{"192.0.2.7, , 10.3.3.3"}, "10.3.3.3:0"},
		{"empty at the end", proxy, []string{"192.0.2.7,"}, ""},
		{"IPv4 in IPv6", proxy, []string{"192.0.2.7, ::ffff:192.0.2.1, ::ffff:10.3.3.3"}, "192.0.2.1:0"},
		{"port", proxy, []string{"192.0.2.1:4660"}, "192.0.2.1:4660"},
		{"IPv6", proxy, []string{"2001:db8::1"}, "[2001:db8::1]:0"},
		{"IPv6 in brackets", proxy, []string{"[2001:db8::1]"}, "[2001:db8::1]:0"},
		{"IPv6 with a port", proxy, []string{"[2001:db8::1]:4660, [2001:db8:1::1]:99"}, "[2001:db8::1]:4660"},
		{"zone", proxy, []string{"fe80::1%eth0"}, "[fe80::1]:0"},
		{"zone of a trusted one", proxy, []string{"192.0.2.1, 2001:db8:1::1%eth0"}, "192.0.2.1:0"},
		{"half a bracket", proxy, []string{"[2001:db8::1"}, ""},
		{"IPv4 in brackets", proxy, []string{"[192.0.2.1]"}, ""},
		{"brackets twice", proxy, []string{"[[2001:db8::1]]"}, ""},
		{"port too large", proxy, []string{"192.0.2.1:65536"}, ""},
		{"leading zeros", proxy, []string{"192.0.02.1"}, ""},
		{"quotes", proxy, []string{`"192.0.2.1"`}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Forwarded(test.peer, test.lists, trusted)
			if test.want == "" {
				assert.Nil(t, got)
			} else {
				assert.Equal(t, test.want, got.String())
			}
			assert.Nil(t, Forwarded(test.peer, test.lists, nil))
		})
	}
}

func FuzzForwarded(f *testing.F) {
	for _, seed := range []string{"192.0.2.7, 10.3.3.3", "[2001:db8::1]:4660", "fe80::1%eth0,", "::ffff:10.0.0.1"} {
		f.Add(seed)
	}
	peer := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}
	f.Fuzz(func(t *testing.T, list string) {
		a := Forwarded(peer, []string{list}, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
		if a != nil {
			_, err := netip.ParseAddrPort(a.String())
			assert.NoError(t, err)
		}
	})
}
