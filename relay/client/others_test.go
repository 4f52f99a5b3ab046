package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
)

// TestOthers: the address in a GOAWAY is followed if the Client was configured with
// it, once, and what is wrong there is no reason to give up.
func TestOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := []string{"other", "evil", "", "pinned", "down", "Dial"} // one for each connection home
		home := &fakeRelay{t: t, seed: relaySeed}
		home.script = func(c *fakeConn) {
			if c.n >= len(names) {
				c.hold()
				return
			}
			away := frame.GoAway{After: 5 * time.Second, Address: names[c.n]}
			c.write(&frame.Brep{Type: frame.TypeGoAway, Payload: away.Append(nil)})
		}
		closes := func(c *fakeConn) { time.Sleep(time.Hour) }
		other := &fakeRelay{t: t, seed: relaySeed + 1, script: closes}
		pinned := &fakeRelay{t: t, seed: relaySeed + 2, script: closes}
		key, wrong := identity(t, relaySeed).Public(), identity(t, relaySeed+3).Public()
		var met []handshake.Relay
		c, err := home.client(func(c *Config) {
			c.Relay = &key
			c.BackoffMin, c.BackoffMax = time.Second, 10*time.Second
			c.Others = map[string]Other{
				"other":  {Dial: other.dial},
				"pinned": {Dial: pinned.dial, Relay: &wrong},
				"down":   {Dial: (&rig{}).dial},
			}
			c.Trace = &Trace{Connected: func(r handshake.Relay) { met = append(met, r) }}
		})
		require.NoError(t, err)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.NoError(t, c.Err())
		require.Equal(t, len(names)+1, home.dialled())
		require.Equal(t, 1, other.dialled())
		require.Equal(t, 1, pinned.dialled())
		require.GreaterOrEqual(t, other.dials[0].Sub(home.dials[0]), 5*time.Second)
		require.Len(t, met, len(names)+2)
		require.Equal(t, identity(t, relaySeed+1).Public(), met[1].Key)
		require.NoError(t, c.Close())
		other.running.Wait()
		pinned.running.Wait()
	})
	_, err := New(context.Background(), &Config{
		Identity: identity(t, 1), Dial: new(fakeRelay).dial,
		Others: map[string]Other{"x": {}},
	})
	require.ErrorContains(t, err, `"x"`)
}
