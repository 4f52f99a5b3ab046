package udp

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"
)

func TestFrom(t *testing.T) {
	big := func(port uint16) uint16 { return binary.NativeEndian.Uint16([]byte{byte(port >> 8), byte(port)}) }
	v4 := unix.RawSockaddrInet4{Family: unix.AF_INET, Port: big(4660), Addr: [4]byte{192, 0, 2, 1}}
	var name unix.RawSockaddrInet6
	*(*unix.RawSockaddrInet4)(unsafe.Pointer(&name)) = v4
	assert.Equal(t, "192.0.2.1:4660", from(&name).String())

	name = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: big(1), Addr: [16]byte{0x20, 1, 0xd, 0xb8, 15: 9}}
	assert.Equal(t, "[2001:db8::9]:1", from(&name).String())
	name.Scope_id = 7
	assert.Equal(t, "[2001:db8::9%7]:1", from(&name).String())
	name.Scope_id = 0
	name.Addr = [16]byte{10: 0xff, 11: 0xff, 12: 192, 14: 2, 15: 1}
	assert.Equal(t, "192.0.2.1:1", from(&name).String())
	name.Family = unix.AF_UNIX
	assert.False(t, from(&name).IsValid())
}
