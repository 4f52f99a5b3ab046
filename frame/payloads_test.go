package frame

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	keyA = strings.Repeat("a", 32)
	keyB = strings.Repeat("b", 32)
	id16 = strings.Repeat("i", 16)
	sig  = strings.Repeat("s", 64)
)

// A payloadCase is a value and its encoding.
type payloadCase[T any] struct {
	name    string
	value   T
	encoded string
}

var nodeInfos = []payloadCase[NodeInfo]{
	{"request servers", NodeInfo{Subtype: NodeInfoRequestServers}, "\x02"},
	{"no servers", NodeInfo{Subtype: NodeInfoResponseServers, Servers: []ServerInfo{}}, "\x03\x00\x00"},
	{"servers", NodeInfo{Subtype: NodeInfoResponseServers, Servers: []ServerInfo{
		{[32]byte([]byte(keyA)), "wss://a.example/"},
		{[32]byte([]byte(keyB)), ""},
	}}, "\x03\x00\x02" + keyA + "\x10wss://a.example/" + keyB + "\x00"},
	{"add server", NodeInfo{Subtype: NodeInfoAddServer, Address: "wss://é"}, "\x04\x08wss://é"},
	{"add server, longest", NodeInfo{Subtype: NodeInfoAddServer, Address: strings.Repeat("x", 255)},
		"\x04\xff" + strings.Repeat("x", 255)},
	{"query", NodeInfo{Subtype: NodeInfoQueryClient, Client: [32]byte([]byte(keyA))}, "\x05" + keyA},
	{"not found", NodeInfo{Subtype: NodeInfoQueryResponse, Client: [32]byte([]byte(keyA))}, "\x06\x00" + keyA},
	{"found", NodeInfo{Subtype: NodeInfoQueryResponse, Client: [32]byte([]byte(keyA)), Found: true,
		Relay: [32]byte([]byte(keyB))}, "\x06\x01" + keyA + keyB},
}

var receipts = []payloadCase[Receipt]{
	{"handed over", Receipt{ID: [16]byte([]byte(id16)), Status: ReceiptHandedOver}, id16 + "\x01"},
	{"stored", Receipt{ID: [16]byte([]byte(id16)), Status: ReceiptStored}, id16 + "\x02"},
	{"acknowledged", Receipt{ID: [16]byte([]byte(id16)), Status: ReceiptAcknowledged,
		Recipient: [32]byte([]byte(keyA)), Signature: [64]byte([]byte(sig))}, id16 + "\x03" + keyA + sig},
	{"refused", Receipt{ID: [16]byte([]byte(id16)), Status: ReceiptRefused, Code: CodeInboxFull, Reason: "inbox full"},
		id16 + "\x04\x00\x0ainbox full"},
	{"expired", Receipt{ID: [16]byte([]byte(id16)), Status: ReceiptExpired, Code: 0x1234}, id16 + "\x05\x12\x34"},
}

var frameErrors = []payloadCase[Error]{
	{"without id", Error{Code: CodeRateLimited, Sentence: "rate limit exceeded"}, "\x00\x07rate limit exceeded"},
	{"with id", Error{Code: CodeNotHere, Sentence: "é", ID: [16]byte([]byte(id16))}, "\x00\x0cé" + id16},
	{"code alone", Error{Code: 0xffff}, "\xff\xff"},
	{"code and id", Error{Code: 1, ID: [16]byte([]byte(id16))}, "\x00\x01" + id16},
}

var goAways = []payloadCase[GoAway]{
	{"at once", GoAway{}, "\x00\x00\x00\x00"},
	{"elsewhere", GoAway{After: 1500 * time.Millisecond, Address: "wss://b.example"}, "\x00\x00\x05\xdcwss://b.example"},
	{"longest", GoAway{After: (1<<32 - 1) * time.Millisecond}, "\xff\xff\xff\xff"},
}

func TestPayloads(t *testing.T) {
	for _, c := range nodeInfos {
		t.Run("node info: "+c.name, func(t *testing.T) {
			b, err := c.value.Append([]byte("x"))
			require.NoError(t, err)
			assert.Equal(t, "x"+c.encoded, string(b))
			got, err := DecodeNodeInfo([]byte(c.encoded))
			require.NoError(t, err)
			assert.Equal(t, c.value, got)
		})
	}
	for _, c := range receipts {
		t.Run("receipt: "+c.name, func(t *testing.T) {
			assert.Equal(t, "x"+c.encoded, string(c.value.Append([]byte("x"))))
			got, err := DecodeReceipt([]byte(c.encoded))
			require.NoError(t, err)
			assert.Equal(t, c.value, got)
		})
	}
	for _, c := range frameErrors {
		t.Run("error: "+c.name, func(t *testing.T) {
			assert.Equal(t, "x"+c.encoded, string(c.value.Append([]byte("x"))))
			got, err := DecodeError(c.value.Flags(), []byte(c.encoded))
			require.NoError(t, err)
			assert.Equal(t, c.value, got)
		})
	}
	for _, c := range goAways {
		t.Run("goaway: "+c.name, func(t *testing.T) {
			assert.Equal(t, "x"+c.encoded, string(c.value.Append([]byte("x"))))
			got, err := DecodeGoAway([]byte(c.encoded))
			require.NoError(t, err)
			assert.Equal(t, c.value, got)
		})
	}
}

func TestPayloadsMalformed(t *testing.T) {
	nodeInfo := func(b string) (any, error) { return DecodeNodeInfo([]byte(b)) }
	receipt := func(b string) (any, error) { return DecodeReceipt([]byte(b)) }
	noID := func(b string) (any, error) { return DecodeError(0, []byte(b)) }
	withID := func(b string) (any, error) { return DecodeError(FlagErrorID, []byte(b)) }
	goAway := func(b string) (any, error) { return DecodeGoAway([]byte(b)) }
	entry := keyA + "\x01x"
	for _, c := range []struct {
		name    string
		decode  func(string) (any, error)
		encoded string
		want    error
	}{
		{"node info: empty", nodeInfo, "", ErrUnknownSubtype},
		{"node info: request clients", nodeInfo, "\x00", ErrUnknownSubtype},
		{"node info: response clients", nodeInfo, "\x01\x00\x00", ErrUnknownSubtype},
		{"node info: subtype 7", nodeInfo, "\x07", ErrUnknownSubtype},
		{"node info: subtype 255", nodeInfo, "\xff" + keyA, ErrUnknownSubtype},
		{"request servers: something follows", nodeInfo, "\x02x", ErrMalformed},
		{"servers: no count", nodeInfo, "\x03", ErrMalformed},
		{"servers: half a count", nodeInfo, "\x03\x00", ErrMalformed},
		{"servers: count larger", nodeInfo, "\x03\x00\x02" + entry, ErrMalformed},
		{"servers: count smaller", nodeInfo, "\x03\x00\x01" + entry + entry, ErrMalformed},
		{"servers: count 0 and an entry", nodeInfo, "\x03\x00\x00" + entry, ErrMalformed},
		{"servers: count 65535 of nothing", nodeInfo, "\x03\xff\xff", ErrMalformed},
		{"servers: half a key", nodeInfo, "\x03\x00\x01" + keyA[:16], ErrMalformed},
		{"servers: no address length", nodeInfo, "\x03\x00\x01" + keyA, ErrMalformed},
		{"servers: address cut", nodeInfo, "\x03\x00\x01" + keyA + "\x05wss:", ErrMalformed},
		{"servers: second address not UTF-8", nodeInfo, "\x03\x00\x02" + entry + keyB + "\x01\xff", ErrMalformed},
		{"servers: byte left over", nodeInfo, "\x03\x00\x01" + entry + "x", ErrMalformed},
		{"add server: nothing", nodeInfo, "\x04", ErrMalformed},
		{"add server: address cut", nodeInfo, "\x04\x05wss:", ErrMalformed},
		{"add server: byte left over", nodeInfo, "\x04\x03wss:", ErrMalformed},
		{"add server: not UTF-8", nodeInfo, "\x04\x02\xc0\x80", ErrMalformed},
		{"query: short key", nodeInfo, "\x05" + keyA[1:], ErrMalformed},
		{"query: long key", nodeInfo, "\x05" + keyA + "x", ErrMalformed},
		{"query response: nothing", nodeInfo, "\x06", ErrMalformed},
		{"query response: status 2", nodeInfo, "\x06\x02" + keyA + keyB, ErrMalformed},
		{"query response: found without a relay", nodeInfo, "\x06\x01" + keyA, ErrMalformed},
		{"query response: not found with a relay", nodeInfo, "\x06\x00" + keyA + keyB, ErrMalformed},
		{"query response: byte left over", nodeInfo, "\x06\x01" + keyA + keyB + "x", ErrMalformed},

		{"receipt: empty", receipt, "", ErrMalformed},
		{"receipt: no status", receipt, id16, ErrMalformed},
		{"receipt: status 0", receipt, id16 + "\x00", ErrMalformed},
		{"receipt: status 6", receipt, id16 + "\x06", ErrMalformed},
		{"receipt: handed over and more", receipt, id16 + "\x01x", ErrMalformed},
		{"receipt: stored and more", receipt, id16 + "\x02x", ErrMalformed},
		{"receipt: acknowledged, short", receipt, id16 + "\x03" + keyA + sig[1:], ErrMalformed},
		{"receipt: acknowledged, long", receipt, id16 + "\x03" + keyA + sig + "x", ErrMalformed},
		{"receipt: refused, half a code", receipt, id16 + "\x04\x00", ErrMalformed},
		{"receipt: refused, not UTF-8", receipt, id16 + "\x04\x00\x01\xff", ErrMalformed},
		{"receipt: expired, no code", receipt, id16 + "\x05", ErrMalformed},

		{"error: empty", noID, "", ErrMalformed},
		{"error: half a code", noID, "\x00", ErrMalformed},
		{"error: not UTF-8", noID, "\x00\x01\xff", ErrMalformed},
		{"error: id announced, short", withID, "\x00\x01" + id16[1:], ErrMalformed},
		{"error: id announced, not there", withID, id16[1:], ErrMalformed},
		{"error: id announced, zero", withID, "\x00\x01" + strings.Repeat("\x00", 16), ErrMalformed},
		{"error: id announced, not UTF-8", withID, "\x00\x01\xff" + id16, ErrMalformed},

		{"goaway: empty", goAway, "", ErrMalformed},
		{"goaway: three bytes", goAway, "\x00\x00\x00", ErrMalformed},
		{"goaway: not UTF-8", goAway, "\x00\x00\x00\x00\xff", ErrMalformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.decode(c.encoded)
			assert.ErrorIs(t, err, c.want)
			assert.Zero(t, got, "nothing of it may be used")
		})
	}
}

func TestNodeInfoAppendRefuses(t *testing.T) {
	long := strings.Repeat("x", 256)
	for name, n := range map[string]NodeInfo{
		"long address":           {Subtype: NodeInfoAddServer, Address: long},
		"address not UTF-8":      {Subtype: NodeInfoAddServer, Address: "\xff"},
		"long address in a list": {Subtype: NodeInfoResponseServers, Servers: []ServerInfo{{}, {Address: long}}},
		"65536 servers":          {Subtype: NodeInfoResponseServers, Servers: make([]ServerInfo, 1<<16)},
		"unknown subtype":        {Subtype: 7},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := n.Append([]byte("dst"))
			assert.Error(t, err)
			assert.Equal(t, "dst", string(b))
		})
	}
}

func TestPayloadsAppendMendText(t *testing.T) {
	assert.Equal(t, "\x00\x01a\uFFFDb", string((&Error{Code: 1, Sentence: "a\xffb"}).Append(nil)))
	r := Receipt{Status: ReceiptRefused, Reason: "\xff"}
	assert.Equal(t, "\x00\x00\uFFFD", string(r.Append(nil)[receiptHead:]))
	assert.Equal(t, "\x00\x00\x00\x00\uFFFD", string((&GoAway{Address: "\xff"}).Append(nil)))
}

func TestGoAwayRange(t *testing.T) {
	for after, want := range map[time.Duration]uint32{
		-time.Hour:                     0,
		-1:                             0,
		1:                              1,
		time.Millisecond:               1,
		time.Millisecond + 1:           2,
		(1<<32 - 1) * time.Millisecond: 1<<32 - 1,
		1 << 32 * time.Millisecond:     1<<32 - 1,
		time.Duration(1<<63 - 1):       1<<32 - 1,
	} {
		b := (&GoAway{After: after}).Append(nil)
		assert.Equal(t, want, binary.BigEndian.Uint32(b), after)
	}
}

// A list of count 65535 that is malformed in its last byte costs nothing.
func TestDecodeNodeInfoAllocatesAfterChecking(t *testing.T) {
	b := append([]byte("\x03\xff\xff"), make([]byte, 33*0xffff-1)...)
	assert.Zero(t, testing.AllocsPerRun(10, func() { _, _ = DecodeNodeInfo(b) }))
}

func TestCodes(t *testing.T) {
	names := strings.Fields(`malformed unsupported-version not-authenticated bad-signature spoofed-sender too-large
		rate-limited overloaded quota inbox-full storage-full not-here not-in-room invalid-topic invalid-filter
		retained-full denied replaced going-away hop-limit not-found unknown-verb expired internal`)
	require.Len(t, names, int(CodeInternal))
	for i, name := range names {
		assert.Equal(t, name, Code(i+1).String())
	}
	assert.Equal(t, "code-0", Code(0).String())
	assert.Equal(t, "code-25", Code(25).String())
	assert.Equal(t, "code-65535", Code(65535).String())
}

func FuzzDecodeNodeInfo(f *testing.F) {
	for _, c := range nodeInfos {
		f.Add([]byte(c.encoded))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := DecodeNodeInfo(b)
		if err != nil {
			require.Zero(t, n)
			return
		}
		again, err := n.Append(nil)
		require.NoError(t, err)
		require.Equal(t, b, again)
	})
}

func FuzzDecodeReceipt(f *testing.F) {
	for _, c := range receipts {
		f.Add([]byte(c.encoded))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := DecodeReceipt(b); err == nil {
			require.Equal(t, b, r.Append(nil))
		}
	})
}

func FuzzDecodeError(f *testing.F) {
	for _, c := range frameErrors {
		f.Add(c.value.Flags(), []byte(c.encoded))
	}
	f.Fuzz(func(t *testing.T, flags uint8, b []byte) {
		if e, err := DecodeError(flags, b); err == nil {
			require.Equal(t, b, e.Append(nil))
			require.Equal(t, flags&FlagErrorID, e.Flags())
		}
	})
}

func FuzzDecodeGoAway(f *testing.F) {
	for _, c := range goAways {
		f.Add([]byte(c.encoded))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if g, err := DecodeGoAway(b); err == nil {
			require.Equal(t, b, g.Append(nil))
		}
	})
}
