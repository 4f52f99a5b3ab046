package netaddr

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOf(t *testing.T) {
	for _, test := range []struct {
		addr net.Addr
		want string
	}{
		{&net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 4}, "10.1.2.3"},
		{&net.TCPAddr{IP: net.IP{10, 1, 2, 3}}, "10.1.2.3"},
		{&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0"}, "fe80::1"},
		{&net.TCPAddr{}, "invalid IP"},
		{&net.UnixAddr{Name: "@"}, "invalid IP"},
		{nil, "invalid IP"},
	} {
		assert.Equal(t, test.want, Of(test.addr).String())
	}
}

func TestIn(t *testing.T) {
	for _, test := range []struct {
		addr, prefix string
		want         bool
	}{
		{"10.1.2.3", "10.0.0.0/8", true},
		{"11.1.2.3", "10.0.0.0/8", false},
		{"10.1.2.3", "::ffff:10.0.0.0/104", true},
		{"11.1.2.3", "::ffff:10.0.0.0/104", false},
		{"10.1.2.3", "::/0", false},
		{"2001:db8::1", "2001:db8::/32", true},
		{"2001:db8::1", "0.0.0.0/0", false},
		{"", "0.0.0.0/0", false},
	} {
		a, _ := netip.ParseAddr(test.addr)
		assert.Equal(t, test.want, In(a, []netip.Prefix{{}, netip.MustParsePrefix(test.prefix)}), "%s in %s", test.addr, test.prefix)
	}
	assert.False(t, In(netip.MustParseAddr("10.1.2.3"), nil))
}
