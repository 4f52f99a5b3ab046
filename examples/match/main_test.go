package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/jsonmsg"
	"github.com/sotto-relay/sotto/transport/ws"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPlayBoth(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var out bytes.Buffer
	require.NoError(t, playBoth(ctx, &out))
	shown := out.String()
	assert.Regexp(t, "^waiting for an opponent\nyou are [XO]\nX:\n 1 2 3\n 4 X 6\n 7 8 9\nO:\n O 2 3\n 4 X 6\n 7 8 9\n", shown)
	assert.True(t, strings.HasSuffix(shown, "a draw\n"), shown)
}

// TestPeople: two people at a relay of somebody's, one of whom mistypes.
func TestPeople(t *testing.T) {
	srv := &relay.Server{Logger: slog.New(slog.DiscardHandler)}
	t.Cleanup(func() { _ = srv.Close() })
	web := httptest.NewServer(ws.Handler(srv.Speak(jsonmsg.Dialect{}), nil))
	t.Cleanup(web.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	dial := ws.Dialer(strings.Replace(web.URL, "http", "ws", 1), nil)

	// Whoever is X takes the first row, and the other one the second.
	moves := func(b board, mark byte) (int, error) {
		in, out := map[byte]string{'X': "1\n2\n3\n", 'O': "1\nx\n4\n5\n6\n"}[mark], new(bytes.Buffer)
		at, err := ask(strings.NewReader(in), out)(b, mark)
		if mark == 'O' && b[3] == 0 {
			assert.Equal(t, 2, strings.Count(out.String(), "that does not do"))
		}
		for err == nil && b[at] != 0 {
			at++
		}
		return at, err
	}
	ends := make(chan error, 2)
	var outs [2]bytes.Buffer
	for i := range outs {
		go func() { ends <- (&player{dial: dial, choose: moves, out: &outs[i]}).play(ctx) }()
	}
	for range outs {
		require.NoError(t, <-ends)
	}
	for i := range outs {
		assert.True(t, strings.HasSuffix(outs[i].String(), " X X X\n O O 6\n 7 8 9\nX wins\n"), outs[i].String())
	}
}

func TestBoard(t *testing.T) {
	var b board
	require.NoError(t, b.place(8, 'X'))
	for _, at := range []int{-1, 9, 8} {
		assert.Error(t, b.place(at, 'O'))
	}
	at, err := best(board{'X', 'X', 0, 0, 'O'}, 'O')
	require.NoError(t, err)
	assert.Equal(t, 2, at, "does not let the other one win")
	at, err = best(board{'X', 'X', 0, 'O', 'O'}, 'O')
	require.NoError(t, err)
	assert.Equal(t, 5, at, "wins")
	_, err = ask(strings.NewReader("12\n"), io.Discard)(board{}, 'X')
	assert.Error(t, err)
}
