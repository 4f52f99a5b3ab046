package jsonmsg

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

func readPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/json.md")
	require.NoError(t, err)
	return string(page)
}

var said = regexp.MustCompile(`(?m)^\w+ [<>] .*$`)

// TestPageConversation plays what docs/json.md shows.
func TestPageConversation(t *testing.T) {
	lines := said.FindAllString(readPage(t), -1)
	require.Greater(t, len(lines), 35)
	bubble(t, nil, func(_ *testing.T, r *rig) { r.play(strings.Join(lines, "\n")) })
}

// TestPageSealed opens the message that docs/json.md explains.
func TestPageSealed(t *testing.T) {
	page := readPage(t)
	row := func(name string) []byte {
		m := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(name) + ` \| (.*) \|$`).FindStringSubmatch(page)
		require.NotNil(t, m, name)
		b, err := hex.DecodeString(strings.NewReplacer("`", "", " ", "").Replace(m[1]))
		require.NoError(t, err)
		return b
	}
	alice, err := crypto.NewX25519PrivateKey(row("Alice's secret key"))
	require.NoError(t, err)
	bob, err := crypto.NewX25519PrivateKey(row("Bob's secret key"))
	require.NoError(t, err)
	a, b := alice.Public(), bob.Public()
	assert.Equal(t, row("Alice's public key"), a[:])
	assert.Equal(t, row("Bob's public key"), b[:])
	nonce, box := row("nonce"), row("box: tag, then text")
	text, err := crypto.OpenBox(bob, a, nonce, box)
	require.NoError(t, err)
	assert.Contains(t, page, "| text | `"+string(text)+"` |")

	b64 := base64.StdEncoding.EncodeToString
	assert.Contains(t, page, `bob < {"t":"deliver","from":"alice","pub":"`+a.String()+`","nonce":"`+b64(nonce)+`","ct":"`+b64(box)+`","id":"m1"}`)
	assert.Contains(t, page, "The key\n`"+a.String()+"` has the address `"+a.Address()+"`")

	register := []byte(`{"t":"register","addr":"alice"}`)
	var hexed []string
	for _, c := range append(frame.AppendJSONHead(nil, len(register)), register...) {
		hexed = append(hexed, hex.EncodeToString([]byte{c}))
	}
	assert.Contains(t, page, "\n"+strings.Join(hexed, " ")+"\n")
}

// TestPageErrors: docs/json.md lists every error of spec json.md, and the example
// objects are such.
func TestPageErrors(t *testing.T) {
	page := readPage(t)
	for _, r := range []Reason{
		ErrInvalidJSON, ErrUnknownType, ErrTooLarge, ErrBinary, ErrNotRegistered, ErrRateLimited, ErrNoAddress,
		ErrInvalidAddr, ErrInvalidPubkey, ErrAliasBound, ErrNeedsKey, ErrAddressInUse, ErrTakenOver, ErrProofFailed,
		ErrOverloaded, ErrNotInRoom, ErrInvalidRoom, ErrRoomFull, ErrTooManyRooms, ErrInvalidGame, ErrTooManyGames,
		ErrInvalidTopic, ErrInvalidFilter, ErrTooManyFilters, ErrRetainedFull, ErrStorageFull,
	} {
		assert.Contains(t, page[strings.Index(page, "## Errors"):], "`"+string(r)+"`")
	}
	for _, block := range regexp.MustCompile("(?ms)^```json\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		assert.True(t, json.Valid([]byte(block[1])), block[1])
	}
}
