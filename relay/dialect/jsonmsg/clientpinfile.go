package jsonmsg

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/internal/atomicfile"
)

// FilePins is a PinStore in a file of one line per peer: the key in standard base64,
// a space, and the address. The file has mode 0600 and is replaced as a whole, so a
// reader never sees half of it. One that does not exist is empty. It is read at
// every call: a person makes a peer forgotten by deleting its line. It holds 10,000
// peers, and takes no others then.
//
// A line that is anything else, or an address that has two, is an error that names
// the file, and nothing of the file is used: skipping the line would trust whoever
// has that address next.
type FilePins struct {
	path string

	// replace is held from reading the file to replacing it, or what another caller
	// remembered meanwhile would be lost. Lookups do not take it.
	replace sync.Mutex
}

// NewFilePins returns FilePins at path, in a directory that exists. One process at a
// time may write to one file, through one FilePins.
func NewFilePins(path string) *FilePins { return &FilePins{path: path} }

// Lookup implements PinStore.
func (p *FilePins) Lookup(address string) (crypto.X25519Key, bool, error) {
	pins, err := p.read()
	if err != nil {
		return crypto.X25519Key{}, false, err
	}
	key, ok := pins.keys[address]
	return key, ok, nil
}

// Remember implements PinStore. When it returns nil the key is in the file.
func (p *FilePins) Remember(address string, key crypto.X25519Key) error {
	if err := isPinnable(address); err != nil {
		return err
	}
	p.replace.Lock()
	defer p.replace.Unlock()
	pins, err := p.read()
	if err != nil {
		return err
	}
	if old, ok := pins.keys[address]; ok {
		return samePin(address, old, key)
	}
	if len(pins.keys) >= mostPins {
		return errPinsFull
	}
	return atomicfile.Write(p.path, []byte(strings.Join(append(pins.lines, pinLine(address, key)), "")))
}

// Forget has the next key of address be its first one again.
func (p *FilePins) Forget(address string) error {
	p.replace.Lock()
	defer p.replace.Unlock()
	pins, err := p.read()
	if err != nil {
		return err
	}
	key, ok := pins.keys[address]
	if !ok {
		return nil
	}
	var rest strings.Builder
	for _, line := range pins.lines {
		if line != pinLine(address, key) {
			rest.WriteString(line)
		}
	}
	return atomicfile.Write(p.path, []byte(rest.String()))
}

// pinFile is what is in a file.
type pinFile struct {
	lines []string // newlines included
	keys  map[string]crypto.X25519Key
}

func (p *FilePins) read() (*pinFile, error) {
	content, err := os.ReadFile(p.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("json: reading pinned keys: %w", err)
	}
	pins := &pinFile{keys: make(map[string]crypto.X25519Key)}
	for line := range strings.Lines(string(content)) {
		pins.lines = append(pins.lines, line)
		address, key, err := parsePin(line)
		if _, again := pins.keys[address]; again && err == nil {
			err = errors.New("an address for the second time")
		}
		if err != nil {
			return nil, fmt.Errorf("json: %s:%d: %w", p.path, len(pins.lines), err)
		}
		pins.keys[address] = key
	}
	return pins, nil
}

func pinLine(address string, key crypto.X25519Key) string {
	return key.String() + " " + address + "\n"
}

// parsePin is the inverse of pinLine.
func parsePin(line string) (address string, key crypto.X25519Key, err error) {
	text, address, ok := strings.Cut(line, " ")
	address, whole := strings.CutSuffix(address, "\n")
	if !ok || !whole {
		return "", key, errors.New("not a key, a space, an address and a newline")
	}
	if err := isPinnable(address); err != nil {
		return "", key, err
	}
	if key, err = crypto.ParseX25519Key(text); err != nil {
		return "", key, fmt.Errorf("not an X25519 key in base64: %w", err)
	}
	return address, key, nil
}

// isPinnable refuses what is no address, and so may not be one line.
func isPinnable(address string) error {
	if !frame.IsName(address, frame.MaxName) || !utf8.ValidString(address) {
		return fmt.Errorf("json: %q is no address", address)
	}
	return nil
}
