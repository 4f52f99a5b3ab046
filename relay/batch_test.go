package relay

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
)

// A busy connection never tells that it has run dry.
type busy struct{ transport.Conn }

func (busy) SetDry(func()) {}

// A peer that never pauses does not hold up what it sends for long.
func TestBatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, words{})
		bob := b.as("bob")
		client, server := pipe.New()
		b.Speak(b.d).HandleConn(busy{server})
		alice := peer{t, client}
		alice.say("claim alice")
		const most = batchBytes/batchOverhead + 1
		for i := range most {
			alice.say("send bob %d", i)
		}
		alice.expect("welcome")
		for i := range most - 1 {
			bob.expect(fmt.Sprint("alice ", i))
			if i > most/2 {
				return
			}
		}
	})
}
