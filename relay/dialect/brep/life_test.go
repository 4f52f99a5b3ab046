package brep

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
)

const lifeInterval = 30 * time.Second

func withPings(r *rig) { r.PingInterval = lifeInterval }

// TestSilentPeer: pinged every 30 s, closed after 75 s; what it is sent is no
// life.
func TestSilentPeer(t *testing.T) {
	bubble(t, withPings, func(t *testing.T, r *rig) {
		p, other := r.login(identity(t, 1), formExtended), r.login(identity(t, 2), formExtended)
		start := time.Now()
		go func() {
			for range 70 {
				time.Sleep(time.Second)
				other.data(p.id, "noise")
			}
		}()
		var pings []time.Duration
		for {
			_, msg, err := p.raw.Read() // the Client would answer
			require.NoError(t, err)
			f, err := frame.DecodeBrep(msg)
			require.NoError(t, err)
			if f.Type == frame.TypePing {
				require.Len(t, f.Payload, pingSize)
				pings = append(pings, time.Since(start))
			}
			if f.Type == frame.TypeGoAway {
				break
			}
		}
		require.Equal(t, []time.Duration{lifeInterval, 2 * lifeInterval}, pings)
		require.Equal(t, 75*time.Second, time.Since(start))
		require.EqualValues(t, 1001, closeOf(t, p.raw))
		synctest.Wait()
		require.Equal(t, 1, r.server.Stats().Sessions)
	})
}

// TestPeerFallsSilent: its time begins with the last that was heard of it, give
// or take half an interval.
func TestPeerFallsSilent(t *testing.T) {
	bubble(t, withPings, func(t *testing.T, r *rig) {
		p := r.login(identity(t, 1), formExtended)
		time.Sleep(20 * time.Second)
		p.data(p.id, "the last")
		start := time.Now()
		require.EqualValues(t, 1001, closeOf(t, p.raw))
		silent := time.Since(start)
		require.GreaterOrEqual(t, silent, 75*time.Second)
		require.LessOrEqual(t, silent, 90*time.Second)
	})
}

// TestQuietPeer: one that answers PINGs stays, and so does a legacy one, which
// has none to answer.
func TestQuietPeer(t *testing.T) {
	bubble(t, withPings, func(t *testing.T, r *rig) {
		for form := range formNames {
			p := r.login(identity(t, byte(1+form)), uint8(form))
			time.AfterFunc(time.Hour, func() { p.data(p.id, "an hour later") })
			require.Equal(t, "an hour later", p.text())
		}
	})
}
