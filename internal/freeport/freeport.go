// Package freeport finds ports for the listeners of tests that are to come later, or
// to come again: a port that the system chose is anybody's once it is closed.
package freeport

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Address returns an address of this machine, "127.0.0.1:port", at which nobody listens
// over TCP. Its port is below those that systems give away by themselves, which begin
// at 32768.
func Address(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(10_000+rand.IntN(20_000)))
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
	t.Fatal("there is no free port")
	return ""
}
