package crypto

import (
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"strings"
)

// wordList is the English list of BIP-39, byte for byte: 2,048 words, one a line.
//
//go:embed words.txt
var wordList string

// Fingerprint returns six words, separated by spaces, for people to compare keys
// by (native.md "Sealing"). They hold 66 bits: enough against a key that was made
// to have the same words as another, not a name for the key.
func (k PublicKey) Fingerprint() string {
	h := sha256.Sum256(append([]byte("sotto words v1\x00"), k[:]...))
	words := strings.Fields(wordList)
	picked := make([]string, 6)
	for i := range picked {
		// 11 bits from bit 11·i on lie within the 4 bytes around them.
		bit := 11 * i
		four := binary.BigEndian.Uint32(h[bit/8:])
		picked[i] = words[four>>(32-11-bit%8)&0x7ff]
	}
	return strings.Join(picked, " ")
}
