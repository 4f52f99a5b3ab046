package blind

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
)

// TestPageFrame makes the message that docs/blind.md shows, byte by byte.
func TestPageFrame(t *testing.T) {
	page, err := os.ReadFile("../../../docs/blind.md")
	require.NoError(t, err)
	shown := regexp.MustCompile("(?s)With the header `([^`]*)`.*has (\\d+) bytes.*signature `(.*?)`.*ciphertext `(.*?)`.*?```text\n(.*?)```").FindSubmatch(page)
	require.Len(t, shown, 6)
	header, signature, ciphertext := shown[1], shown[3], shown[4]
	msg := frame.AppendBlind([]byte{channelFrame}, header, signature, ciphertext)
	assert.Equal(t, msg, unhex(t, strings.Join(strings.Fields(string(shown[5])), "")))
	assert.Equal(t, string(shown[2]), strconv.Itoa(len(header)))
	_, err = frame.ParseHeader(header)
	assert.NoError(t, err)
}
