package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The picture in the docs is of the table there.
func TestDrawn(t *testing.T) {
	page, err := os.ReadFile("../../../docs/mesh.md")
	require.NoError(t, err)
	rows, err := read(string(page))
	require.NoError(t, err)
	drawn, err := os.ReadFile("../../../docs/mesh.svg")
	require.NoError(t, err)
	assert.Equal(t, string(drawn), string(draw(rows)), "go run ./internal/meshsim/plot docs/mesh.md docs/mesh.svg")
}

func TestRead(t *testing.T) {
	const table = "text\n\n" + head + " links | known | a | b | c | d |\n|---|---|---|---|---|---|---|---|\n" +
		"| 10 | 100 | 45 | 7 s | 4.4 / 1,001 | 5.0 / 1,218 | 18 / 2,795 | 1 |\n" +
		"| 1,000 | 10,000 | 20,000 | 9 s | 6 / 1 | 130 / 1 | 1,998 / 2 | 1 |\n\nmore | text\n"
	rows, err := read(table)
	require.NoError(t, err)
	assert.Equal(t, []row{{10, 4.4, 5, 18}, {1000, 6, 130, 1998}}, rows)
	d := xml.NewDecoder(bytes.NewReader(draw(rows)))
	for {
		if _, err = d.Token(); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, io.EOF)
	for _, page := range []string{"", head, head + "\n|-|-|-|-|-|-|-|-|\n| x | 1 | 1 | 1 | 1 | 1 | 1 |\n", "| 1 | 2 |"} {
		_, err := read(page)
		require.ErrorIs(t, err, errTable, page)
	}
}
