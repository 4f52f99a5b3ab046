package frame

import (
	"encoding/binary"
	"errors"
	"math"
	"unicode/utf8"
)

// A NodeInfoSubtype is the first byte of a NODE_INFO payload.
type NodeInfoSubtype uint8

// Subtypes of NODE_INFO (spec brep.md), and what follows the byte. Integers are
// big-endian. 0 and 1 (REQUEST_CLIENTS, RESPONSE_CLIENTS) are never answered,
// since who is connected is nobody's business, and so are unknown to this
// package.
//
//	2 REQUEST_SERVERS   nothing
//	3 RESPONSE_SERVERS  count u16 ‖ count × (key 32 ‖ address length u8 ‖ address, UTF-8)
//	4 ADD_SERVER        address length u8 ‖ address, UTF-8
//	5 QUERY_CLIENT      client key 32
//	6 QUERY_RESPONSE    0 ‖ client key 32 (not found), or 1 ‖ client key 32 ‖ relay key 32 (found)
const (
	NodeInfoRequestServers  NodeInfoSubtype = 2
	NodeInfoResponseServers NodeInfoSubtype = 3
	NodeInfoAddServer       NodeInfoSubtype = 4
	NodeInfoQueryClient     NodeInfoSubtype = 5
	NodeInfoQueryResponse   NodeInfoSubtype = 6
)

// ErrUnknownSubtype is returned for a NODE_INFO payload that is empty or of a
// subtype without a layout. A relay ignores and counts those.
var ErrUnknownSubtype = errors.New("frame: unknown NODE_INFO subtype")

var (
	errAddressLength = errors.New("frame: address longer than 255 bytes or not UTF-8")
	errServerCount   = errors.New("frame: more than 65535 servers")
)

// A ServerInfo is one relay in a list of servers.
type ServerInfo struct {
	Key     [32]byte // Ed25519 public key, not checked
	Address string   // UTF-8, at most 255 bytes, possibly empty, not checked further
}

// A NodeInfo is the payload of a NODE_INFO frame. Fields that its subtype does
// not have are zero.
type NodeInfo struct {
	Subtype NodeInfoSubtype
	Servers []ServerInfo // RESPONSE_SERVERS
	Address string       // ADD_SERVER: UTF-8, at most 255 bytes
	Client  [32]byte     // QUERY_CLIENT, QUERY_RESPONSE
	Found   bool         // QUERY_RESPONSE
	Relay   [32]byte     // QUERY_RESPONSE, when Found: where the client is
}

// Append appends the encoded payload to dst and returns the extended slice. It
// fails, and returns dst as it was, for an address over 255 bytes or not UTF-8,
// for more than 65535 servers, and with ErrUnknownSubtype.
func (n *NodeInfo) Append(dst []byte) ([]byte, error) {
	b := append(dst, byte(n.Subtype))
	switch n.Subtype {
	case NodeInfoRequestServers:
	case NodeInfoResponseServers:
		if len(n.Servers) > math.MaxUint16 {
			return dst, errServerCount
		}
		b = binary.BigEndian.AppendUint16(b, uint16(len(n.Servers)))
		for i := range n.Servers {
			s := &n.Servers[i]
			if !validAddress(s.Address) {
				return dst, errAddressLength
			}
			b = append(b, s.Key[:]...)
			b = append(b, byte(len(s.Address)))
			b = append(b, s.Address...)
		}
	case NodeInfoAddServer:
		if !validAddress(n.Address) {
			return dst, errAddressLength
		}
		b = append(b, byte(len(n.Address)))
		b = append(b, n.Address...)
	case NodeInfoQueryClient:
		b = append(b, n.Client[:]...)
	case NodeInfoQueryResponse:
		if !n.Found {
			b = append(b, 0)
			b = append(b, n.Client[:]...)
			break
		}
		b = append(b, 1)
		b = append(b, n.Client[:]...)
		b = append(b, n.Relay[:]...)
	default:
		return dst, ErrUnknownSubtype
	}
	return b, nil
}

func validAddress(s string) bool { return len(s) <= math.MaxUint8 && utf8.ValidString(s) }

var (
	errServers       = malformed("list of servers is not what its counts say")
	errAddress       = malformed("address is not what its length says, or not UTF-8")
	errSubtypeLength = malformed("NODE_INFO is longer or shorter than its subtype")
	errQueryResponse = malformed("QUERY_RESPONSE of an unknown status, or longer or shorter than its status")
)

// DecodeNodeInfo decodes the payload of a NODE_INFO frame, which it does not
// alias. A payload with anything missing, left over or not UTF-8 is ErrMalformed
// as a whole, also where a part of a list could be read. The memory taken is at
// most a small multiple of len(b).
func DecodeNodeInfo(b []byte) (NodeInfo, error) {
	if len(b) == 0 {
		return NodeInfo{}, ErrUnknownSubtype
	}
	n := NodeInfo{Subtype: NodeInfoSubtype(b[0])}
	b = b[1:]
	var err error
	switch n.Subtype {
	case NodeInfoRequestServers:
		if len(b) != 0 {
			err = errSubtypeLength
		}
	case NodeInfoResponseServers:
		n.Servers, err = decodeServers(b)
	case NodeInfoAddServer:
		address, rest, ok := cutAddress(b)
		if !ok || len(rest) != 0 {
			err = errAddress
		}
		n.Address = string(address)
	case NodeInfoQueryClient:
		if len(b) != 32 {
			err = errSubtypeLength
			break
		}
		n.Client = [32]byte(b)
	case NodeInfoQueryResponse:
		switch {
		case len(b) == 1+32 && b[0] == 0:
			n.Client = [32]byte(b[1:])
		case len(b) == 1+32+32 && b[0] == 1:
			n.Found, n.Client, n.Relay = true, [32]byte(b[1:33]), [32]byte(b[33:])
		default:
			err = errQueryResponse
		}
	default:
		err = ErrUnknownSubtype
	}
	if err != nil {
		return NodeInfo{}, err
	}
	return n, nil
}

// decodeServers walks the list twice: what is left after count entries has to be
// nothing, before anything is allocated.
func decodeServers(b []byte) ([]ServerInfo, error) {
	if len(b) < 2 {
		return nil, errServers
	}
	count := int(binary.BigEndian.Uint16(b))
	entries := b[2:]
	rest := entries
	for range count {
		if len(rest) < 32 {
			return nil, errServers
		}
		var ok bool
		if _, rest, ok = cutAddress(rest[32:]); !ok {
			return nil, errServers
		}
	}
	if len(rest) != 0 {
		return nil, errServers
	}
	servers := make([]ServerInfo, count)
	for i := range servers {
		servers[i].Key = [32]byte(entries)
		var address []byte
		address, entries, _ = cutAddress(entries[32:])
		servers[i].Address = string(address)
	}
	return servers, nil
}

// cutAddress takes a length byte and an address off b.
func cutAddress(b []byte) (address, rest []byte, ok bool) {
	if len(b) == 0 || len(b)-1 < int(b[0]) {
		return nil, nil, false
	}
	address, rest = b[1:1+int(b[0])], b[1+int(b[0]):]
	return address, rest, utf8.Valid(address)
}
