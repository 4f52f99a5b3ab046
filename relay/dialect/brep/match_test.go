package brep

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
)

// TestMatch: who asks is answered with the number of the question; who waits is
// told unasked.
func TestMatch(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		p := r.extended(3)
		alice, bob, carol := p[0], p[1], p[2]
		find := func(n int) string { return fmt.Sprintf(`{"t":"find_match","game":"pong","req":%d}`, n) }
		require.Equal(t, `{"t":"waiting","game":"pong","req":1,"ok":true}`, alice.ask(find(1)))
		require.Equal(t, `{"t":"waiting","game":"pong","req":2,"ok":true}`, alice.ask(find(2)), "MA-01")
		require.Equal(t, `{"t":"matched","game":"pong","peer":"`+alice.id.Public().String()+`","req":7,"ok":true}`, bob.ask(find(7)))
		require.Equal(t, `{"t":"matched","game":"pong","peer":"`+bob.id.Public().String()+`"}`, alice.response())

		// MA-02: who has gone, or has given up, is no ghost in the queue.
		alice.ask(find(3))
		require.Equal(t, `{"t":"match_cancelled","game":"pong","req":4,"ok":true}`, alice.ask(`{"t":"cancel_match","game":"pong","req":4}`))
		require.Equal(t, `{"t":"match_cancelled","game":"pong","req":5,"ok":true}`, alice.ask(`{"t":"cancel_match","game":"pong","req":5}`))
		require.Contains(t, bob.ask(find(8)), "waiting")
		bob.leave()
		require.Contains(t, carol.ask(find(1)), "waiting")
		require.Contains(t, alice.ask(find(6)), carol.id.Public().String())
		carol.response()
	})
}

// TestMatchOfOneKey: MA-03.
func TestMatchOfOneKey(t *testing.T) {
	bubble(t, func(r *rig) { r.InUse = relay.Share }, func(t *testing.T, r *rig) {
		one, other := r.login(identity(t, 1), formExtended), r.login(identity(t, 1), formExtended)
		for _, p := range []*peer{one, other} {
			require.Contains(t, p.ask(`{"t":"find_match","game":"g","req":1}`), "waiting")
		}
	})
}

func TestMatchRefusals(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		p := r.login(identity(t, 1), formExtended)
		for i := range 10 {
			require.Contains(t, p.ask(fmt.Sprintf(`{"t":"find_match","game":"g%d","req":1}`, i)), "waiting")
		}
		require.Equal(t, `{"req":1,"ok":false,"code":"quota","msg":"too many games"}`, p.ask(`{"t":"find_match","game":"g","req":1}`))
		for _, verb := range []string{"find_match", "cancel_match"} {
			for _, game := range []string{`""`, `"\u0001"`, `7`} {
				denied(t, frame.CodeMalformed, p.ask(`{"t":"`+verb+`","game":`+game+`,"req":1}`))
			}
		}
	})
}
