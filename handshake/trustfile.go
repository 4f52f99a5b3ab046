package handshake

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/internal/atomicfile"
)

// A FileTrust is a TrustStore in a file of one line per relay: address, space,
// key in 64 lower-case hexadecimal digits. The file has mode 0600 and is
// replaced as a whole, so a reader never sees half of it. One that does not exist
// is empty. It is read at every call: an operator makes a relay forgotten by
// deleting its line.
//
// A line that is anything else, or an address that has two, is an error that
// names the file, and nothing of the file is used: skipping the line would trust
// whoever is at that address next.
type FileTrust struct {
	path string

	// replace is held from reading the file to replacing it, or what another
	// caller remembered meanwhile would be lost. Lookups do not take it.
	replace sync.Mutex
}

// NewFileTrust returns a FileTrust at path, in a directory that exists. One
// process at a time may remember keys in one file, through one FileTrust.
func NewFileTrust(path string) *FileTrust { return &FileTrust{path: path} }

// Lookup implements TrustStore.
func (t *FileTrust) Lookup(address string) (crypto.PublicKey, bool, error) {
	keys, _, err := t.read()
	if err != nil {
		return crypto.PublicKey{}, false, err
	}
	key, ok := keys[address]
	return key, ok, nil
}

// Remember implements TrustStore. When it returns nil the key is in the file.
func (t *FileTrust) Remember(address string, key crypto.PublicKey) error {
	if err := checkAddress(address); err != nil {
		return err
	}
	t.replace.Lock()
	defer t.replace.Unlock()
	keys, content, err := t.read()
	if err != nil {
		return err
	}
	if old, ok := keys[address]; ok {
		return sameKey(old, key)
	}
	return atomicfile.Write(t.path, fmt.Appendf(content, "%s %v\n", address, key))
}

// read returns the keys and the file as it is.
func (t *FileTrust) read() (map[string]crypto.PublicKey, []byte, error) {
	content, err := os.ReadFile(t.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("handshake: reading known relays: %w", err)
	}
	keys := make(map[string]crypto.PublicKey)
	number := 0
	for line := range strings.Lines(string(content)) {
		number++
		address, key, err := parseTrustLine(line)
		if _, again := keys[address]; again {
			err = errors.New("an address for the second time")
		}
		if err != nil {
			return nil, nil, fmt.Errorf("handshake: %s:%d: %w", t.path, number, err)
		}
		keys[address] = key
	}
	return keys, content, nil
}

// parseTrustLine parses one line, newline included.
func parseTrustLine(line string) (string, crypto.PublicKey, error) {
	line, whole := strings.CutSuffix(line, "\n")
	address, digits, ok := strings.Cut(line, " ")
	if !whole || !ok {
		return "", crypto.PublicKey{}, errors.New("not an address, a space, a key and a newline")
	}
	if err := checkAddress(address); err != nil {
		return "", crypto.PublicKey{}, err
	}
	key, err := crypto.ParsePublicKey(digits)
	return address, key, err
}

// checkAddress refuses an address that would not be one word in a line.
func checkAddress(address string) error {
	if address == "" || !utf8.ValidString(address) || strings.ContainsFunc(address, notInAddress) {
		return fmt.Errorf("%q cannot be remembered as an address", address)
	}
	return nil
}

func notInAddress(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
