package mesh

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheckAddress(t *testing.T) {
	for _, good := range []string{
		"ws://relay.example", "wss://relay.example:8443/path?root=json", "ws://a-b_c.example/", "ws://1.1.1.1:80",
		"wss://[2606:4700::1111]/", "ws://" + strings.Repeat("a", 240) + ".example",
	} {
		assert.NoError(t, CheckAddress(good, false), good)
	}
	private := []string{
		"ws://127.0.0.1", "ws://127.255.1.2:80/", "ws://[::1]/", "ws://[::ffff:127.0.0.1]", "ws://10.0.0.1", "ws://172.31.0.1",
		"ws://192.168.1.1", "ws://100.64.0.1", "ws://[fd00::1]", "ws://[64:ff9b::7f00:1]", "ws://[2002:7f00:1::]",
		"ws://[2002:0a00:0001::5]:80", "ws://[::ffff:a00:1]", "ws://localhost", "ws://a.LocalHost/",
	}
	for _, bad := range private {
		assert.ErrorIs(t, CheckAddress(bad, false), errPrivate, bad)
		assert.NoError(t, CheckAddress(bad, true), bad)
	}
	for _, bad := range []string{
		"", "relay.example", "http://relay.example", "file:///etc/passwd", "ws:relay", "ws://", "ws:///x", "//relay.example",
		"ws://user:pw@relay.example", "ws://user@relay.example", "ws://@relay.example", "ws://relay.example#" + strings.Repeat("a", 64),
		"ws://relay.example:0", "ws://relay.example:", "ws://relay.example:x", "ws://" + strings.Repeat("a", 250) + ".example",
		"ws://relay.example.", "ws://127.0.0.1.", "ws://relay..example", "ws://xn--bcher-kva.example", "ws://bücher.example",
		"ws://2130706433", "ws://0x7f000001", "ws://0x7f.1", "ws://017700000001", "ws://127.1", "ws://0177.0.0.1", "ws://1.2.3.4.5",
		"ws://0.0.0.0", "ws://169.254.169.254/latest", "ws://[fe80::1]", "ws://[fe80::1%25eth0]", "ws://[::]", "ws://224.0.0.1",
		"ws://255.255.255.255", "ws://240.0.0.1", "ws://[ff02::1]", "ws://[::7f00:1]", "ws://[fd00:ec2::254]", "ws://168.63.129.16",
		"ws://100.100.100.200", "ws://192.0.0.192", "ws://[64:ff9b::a9fe:a9fe]", "ws://[2002:a9fe:a9fe::]", "ws://[::ffff:169.254.169.254]",
		"ws://[2001::1]", "ws://[2001:db8::1]", "ws://[64:ff9b:1::a00:1]", "ws://[fec0::1]", "ws://relay%2eexample", "ws://a b.example",
		"ws://①27.0.0.1", "ws://127。0。0。1", "ws://%31%32%37.0.0.1\x00",
	} {
		assert.Error(t, CheckAddress(bad, false), bad)
		assert.Error(t, CheckAddress(bad, true), bad)
	}
}

// A name that resolves to an address is checked when that is dialled.
func TestGuardedDialer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, host := range []string{"127.0.0.1", "localhost", "::ffff:127.0.0.1"} {
		_, err := guarded(false).DialContext(context.Background(), "tcp", net.JoinHostPort(host, port))
		assert.ErrorIs(t, err, errPrivate, host)
	}
	c, err := guarded(true).DialContext(context.Background(), "tcp", l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

func FuzzCheckAddress(f *testing.F) {
	f.Add("ws://127.0.0.1:80/x")
	f.Add("wss://[::1%25lo]/")
	f.Fuzz(func(t *testing.T, address string) {
		if CheckAddress(address, false) != nil {
			return
		}
		// What passes without being allowed to is no literal of this machine's or a
		// private network's.
		host := strings.TrimPrefix(strings.TrimPrefix(address, "wss://"), "ws://")
		if ip, err := netip.ParseAddr(strings.Trim(strings.SplitN(host, "/", 2)[0], "[]")); err == nil {
			ip = ip.Unmap()
			require.False(t, ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified(), address)
		}
		require.NoError(t, CheckAddress(address, true))
	})
}
