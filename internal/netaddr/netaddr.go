// Package netaddr compares addresses of connections with prefixes, such as those
// of trusted proxies.
package netaddr

import (
	"net"
	"net/netip"
	"slices"
)

// Of returns the IP address in a, without a zone and IPv4 as such; the zero Addr
// if there is none, as in the address of a Unix socket.
func Of(a net.Addr) netip.Addr {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return t.AddrPort().Addr().Unmap().WithZone("")
}

// In says whether one of the prefixes, which may be of IPv4 in IPv6 form, holds
// an address as Of returns it. None holds the zero Addr.
func In(a netip.Addr, prefixes []netip.Prefix) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		return p.Contains(a)
	})
}
