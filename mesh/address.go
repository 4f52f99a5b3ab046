package mesh

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"
)

const (
	maxAddress  = 255
	dialTimeout = 10 * time.Second
)

// CheckAddress says whether a relay of a stranger's may be dialled at an address, as
// far as can be told before its name is resolved (spec mesh.md, "Links"). It is a ws
// or wss URL of at most 255 bytes. Addresses of private networks and this machine's
// own are for those who allow them.
func CheckAddress(address string, private bool) error {
	if len(address) > maxAddress {
		return errors.New("mesh: address longer than 255 bytes")
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return errors.New("mesh: address is not a URL")
	case u.Scheme != "ws" && u.Scheme != "wss":
		return errors.New("mesh: address is neither ws nor wss")
	case u.User != nil || u.Opaque != "" || strings.Contains(address, "#"):
		return errors.New("mesh: address with a user or a fragment")
	case u.Port() == "0" || strings.HasSuffix(u.Host, ":"):
		return errors.New("mesh: address without a port that can be dialled")
	}
	return checkHost(u.Hostname(), private)
}

// checkHost refuses what resolvers and browsers read as an address in disguise.
func checkHost(host string, private bool) error {
	if ip, err := netip.ParseAddr(host); err == nil {
		return checkIP(ip, private)
	}
	labels := strings.Split(strings.ToLower(host), ".")
	for _, l := range labels {
		if l == "" || strings.HasPrefix(l, "xn--") || strings.ContainsFunc(l, notInName) {
			return fmt.Errorf("mesh: %q is no plain host name", host)
		}
	}
	switch last := labels[len(labels)-1]; {
	case last[0] >= '0' && last[0] <= '9': // 127.1, 0x7f000001, 017700000001, 2130706433
		return fmt.Errorf("mesh: %q is no plain host name", host)
	case last == "localhost" && !private:
		return errPrivate
	}
	return nil
}

func notInName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
}

var (
	errPrivate  = errors.New("mesh: address of a private network, which is not allowed")
	errReserved = errors.New("mesh: address that no relay has")
)

func prefixes(all ...string) (ps []netip.Prefix) {
	for _, s := range all {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}

// inside are the networks that may be allowed.
func inside() []netip.Prefix {
	return prefixes("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10",
		"198.18.0.0/15", "::1/128", "fc00::/7")
}

// nowhere are those that never are: this host, link-local ones (where clouds have
// their metadata), multicast, documentation, what is reserved. Azure's metadata are at
// a public address, Amazon's and Alibaba's on private ones.
func nowhere() []netip.Prefix {
	return prefixes("0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
		"198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3", "168.63.129.16/32", "100.100.100.200/32",
		"fd00:ec2::/32", "2001::/23", "2001:db8::/32", "3fff::/20")
}

// checkIP refuses an address that strangers must not have us dial, also where IPv6
// stands for it: mapped, 6to4, NAT64.
func checkIP(ip netip.Addr, private bool) error {
	if ip.Zone() != "" {
		return errReserved
	}
	ip = embedded(ip.Unmap())
	for _, p := range nowhere() {
		if p.Contains(ip) {
			return errReserved
		}
	}
	for _, p := range inside() {
		switch {
		case p.Contains(ip) && private:
			return nil
		case p.Contains(ip):
			return errPrivate
		}
	}
	if ip.Is6() && ip.As16()[0]>>5 != 1 { // 2000::/3 is all that is routed
		return errReserved
	}
	return nil
}

// embedded returns the IPv4 address that packets to ip end at, if ip is an IPv6
// address with one in it.
func embedded(ip netip.Addr) netip.Addr {
	b := ip.As16()
	switch {
	case netip.MustParsePrefix("64:ff9b::/96").Contains(ip):
		return netip.AddrFrom4([4]byte(b[12:]))
	case netip.MustParsePrefix("2002::/16").Contains(ip):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return ip
}

// guarded returns a dialer that looks at each address that it is about to connect
// to, after names have been resolved: so no name can stand for another address at
// that moment than when it was checked.
func guarded(private bool) *net.Dialer {
	return &net.Dialer{
		Timeout: dialTimeout,
		Control: func(_, address string, _ syscall.RawConn) error {
			ap, err := netip.ParseAddrPort(address)
			if err != nil {
				return errReserved
			}
			return checkIP(ap.Addr(), private)
		},
	}
}
