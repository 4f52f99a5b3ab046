package main

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/client"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport"
)

// TestIdle holds that recv ends when nothing has come for --idle, and not before.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		relayID, err := crypto.GenerateIdentity()
		require.NoError(t, err)
		srv := &relay.Server{Logger: log}
		defer srv.Close()
		login := func() (*client.Client, crypto.PublicKey) {
			id, err := crypto.GenerateIdentity()
			require.NoError(t, err)
			c, err := client.New(t.Context(), &client.Config{
				Identity: id,
				Logger:   log,
				Dial: func(context.Context) (transport.Conn, error) {
					return srv.Dial(brep.Dialect{Identity: relayID}), nil
				},
			})
			require.NoError(t, err)
			return c, id.Public()
		}
		ann, _ := login()
		defer ann.Close()
		bob, to := login()
		defer bob.Close()
		go func() {
			for range 3 {
				time.Sleep(1500 * time.Millisecond)
				_, err := ann.Send(t.Context(), to, client.Text("x"))
				assert.NoError(t, err)
			}
		}()
		var out bytes.Buffer
		r := &collection{account: &account{p: &program{stdout: &out}}, idle: 2 * time.Second}
		start := time.Now()
		require.NoError(t, r.read(t.Context(), bob))
		assert.Equal(t, 3, strings.Count(out.String(), ": x\n"))
		assert.Equal(t, 6500*time.Millisecond, time.Since(start))
	})
}
