package netaddr

import (
	"net"
	"net/netip"
	"strings"
)

// Forwarded returns the address of the client that trusted proxies speak for,
// or nil if peer is none of them or names nobody. lists are the values of
// X-Forwarded-For. Each proxy appends whom it
// speaks for to X-Forwarded-For: so the list is read from its end, for as long
// as the address before was that of a trusted proxy. Everything left of that is
// the client's to make up, as is all of a list that cannot be read.
func Forwarded(peer net.Addr, lists []string, trusted []netip.Prefix) net.Addr {
	if len(trusted) == 0 {
		return nil
	}
	list := strings.Join(lists, ",")
	var client netip.AddrPort
	for at := Of(peer); list != "" && In(at, trusted); at = client.Addr() {
		i := strings.LastIndexByte(list, ',')
		next, ok := parseForwarded(list[i+1:])
		if !ok {
			break
		}
		client, list = next, list[:max(i, 0)]
	}
	if !client.IsValid() {
		return nil
	}
	return net.TCPAddrFromAddrPort(client)
}

// parseForwarded reads an address with or without a port, of IPv6 with or without
// brackets. A zone means nothing here and is dropped.
func parseForwarded(s string) (netip.AddrPort, bool) {
	s = strings.Trim(s, " \t")
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		if inner, ok := strings.CutPrefix(s, "["); ok {
			if s, ok = strings.CutSuffix(inner, "]"); !ok || !strings.Contains(s, ":") {
				return netip.AddrPort{}, false
			}
		}
		ip, err := netip.ParseAddr(s)
		if err != nil {
			return netip.AddrPort{}, false
		}
		a = netip.AddrPortFrom(ip, 0)
	}
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port()), true
}
