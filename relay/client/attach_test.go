package client

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/relay"
)

// A listMesh notes when clients attach, and answers what it is told to.
type listMesh struct {
	t     testing.TB
	start time.Time
	mu    sync.Mutex
	at    []time.Duration
	next  []error // what is answered; nil afterwards
}

func (m *listMesh) Attach(client crypto.PublicKey, statement []byte) error {
	a, err := crypto.ParseAttachment(statement)
	assert.NoError(m.t, err) // its signature too
	assert.Equal(m.t, client, a.Client)
	assert.Equal(m.t, identity(m.t, relaySeed).Public(), a.Relay)
	assert.Equal(m.t, time.Now().Add(time.Hour).UnixMilli(), a.NotAfter.UnixMilli())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = append(m.at, time.Since(m.start))
	if len(m.next) == 0 {
		return nil
	}
	defer func() { m.next = m.next[1:] }()
	return m.next[0]
}

// attached returns when clients have attached since the last call.
func (m *listMesh) attached() (at []time.Duration) {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	at, m.at = m.at, nil
	return at
}

func (*listMesh) Admits(crypto.PublicKey) bool                          { return false }
func (*listMesh) Accept(*relay.Port, handshake.Peer) error              { return nil }
func (*listMesh) Find(_ crypto.PublicKey, tell func(*crypto.PublicKey)) { tell(nil) }
func (*listMesh) Suggest(crypto.PublicKey, string)                      {}
func (*listMesh) Servers(func(string)) ([]frame.ServerInfo, func())     { return nil, func() {} }

// A Client attaches when it has logged in, at half time, after a reconnect, and again
// when the relay could not take it.
func TestKeepAttached(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		later := &relay.Refusal{Code: relay.CodeNotFound, Reason: "no mesh here"}
		m := &listMesh{t: t, start: time.Now(), next: []error{nil, nil, later, later}}
		r.dialect.Mesh = m
		c := r.client(identity(t, 1), nil)
		require.Equal(t, []time.Duration{0}, m.attached())
		time.Sleep(95 * time.Minute)
		const half, s = 30 * time.Minute, time.Second
		require.Equal(t, []time.Duration{half, 2 * half, 2*half + 10*s, 2*half + 30*s, 3*half + 30*s}, m.attached())

		r.stop()
		time.Sleep(time.Hour)
		require.Empty(t, m.attached())
		r.start()
		time.Sleep(5 * time.Minute)
		require.Len(t, m.attached(), 1)
		require.NoError(t, c.Close())
		time.Sleep(time.Hour)
		require.Empty(t, m.attached())
	})
}

// Relays without a mesh hear of it once, and legacy ones never.
func TestAttachWithoutMesh(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			attached := 0
			r := &fakeRelay{t: t, seed: relaySeed, legacy: legacy, script: func(c *fakeConn) {
				for {
					f, err := c.readAny()
					if err != nil {
						return
					}
					if f.Type == frame.TypeRequest {
						assert.False(t, legacy)
						if readRequest(t, f.Payload).Verb == "attach" {
							attached++
						}
						c.answerOwn(f.Payload)
					}
				}
			}}
			c, err := r.client(nil)
			require.NoError(t, err)
			time.Sleep(3 * time.Hour)
			synctest.Wait()
			require.NoError(t, c.Close())
			r.running.Wait()
			if legacy {
				require.Zero(t, attached)
			} else {
				require.Equal(t, 1, attached)
			}
		})
	}
}
