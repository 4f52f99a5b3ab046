package crypto

import (
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// An identity file is text: the version line and then one labelled value a line,
// in this order. The last two lines are there when the X25519 key is a separate
// one. Public keys are written down so that a damaged value is noticed. What
// parses is byte for byte what would be written.
//
//	sotto identity v1
//	ed25519-public 64 hex digits
//	ed25519-seed 64 hex digits
//	x25519-public 64 hex digits
//	x25519-private 64 hex digits
const (
	fileVersion     = "sotto identity v1"
	labelPublic     = "ed25519-public"
	labelSeed       = "ed25519-seed"
	labelX25519     = "x25519-public"
	labelX25519Priv = "x25519-private"

	maxFileSize = 1024 // a file with all lines has less than 400 bytes
)

// LoadIdentity reads the file that [Identity.Save] wrote. It refuses a file that
// others than its owner can read or write (not checked on Windows), and one that
// is truncated, damaged or something else. Every error names the file and says
// what to do. A file that is not there is [fs.ErrNotExist].
func LoadIdentity(path string) (*Identity, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("identity file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("identity file: %w", err)
	}
	if info.IsDir() {
		return nil, fmt.Errorf("identity file %s: it is a directory", path)
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("identity file %s: other users have access to it (mode %04o); if they cannot have read it, chmod 600 it, else make a new identity", path, perm)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, fmt.Errorf("identity file: %w", err)
	}
	id, err := parseIdentity(text)
	if err != nil {
		return nil, fmt.Errorf("identity file %s: %w", path, err)
	}
	return id, nil
}

// Save writes the identity to a new file that only its owner can read. The file
// appears complete and synced to disk, or not at all. If there is one already,
// it stays as it is: Save returns nil if it holds this very identity, otherwise
// an error that names the file, [fs.ErrExist] if it holds another one.
//
// It needs a file system with hard links; those without do not keep file
// permissions either.
func (id *Identity) Save(path string) error {
	err := createExclusive(path, id.text())
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	there, err := LoadIdentity(path)
	if err != nil {
		return fmt.Errorf("not overwritten: %w", err)
	}
	if !there.equal(id) {
		return fmt.Errorf("identity file %s: %w and holds another identity; move it away first if it is no longer wanted", path, fs.ErrExist)
	}
	return nil
}

// LoadOrCreateIdentity loads the identity in the file, or makes a new one and
// saves it there if there is no file. Processes that do this at the same time
// end up with the same identity.
func LoadOrCreateIdentity(path string) (*Identity, error) {
	id, err := LoadIdentity(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	if id, err = GenerateIdentity(); err != nil {
		return nil, err
	}
	err = id.Save(path)
	if errors.Is(err, fs.ErrExist) {
		return LoadIdentity(path)
	}
	if err != nil {
		return nil, err
	}
	return id, nil
}

// createExclusive writes a file under a temporary name and links it to path,
// which fails with fs.ErrExist where a rename would replace what is there.
func createExclusive(path string, text []byte) (err error) {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, ".identity-*") // with mode 0600
	if err != nil {
		var of *fs.PathError
		if errors.As(err, &of) {
			err = of.Err // the temporary name would only mislead
		}
		return fmt.Errorf("identity file %s: cannot be written into %s: %w", path, dir, err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(text)
	if err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Link(tmp.Name(), path)
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("identity file %s: %w", path, err)
	}
	return nil
}

// syncDir makes a new name in dir durable. Windows neither needs nor offers it.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// text returns what stands in the file of an identity.
func (id *Identity) text() []byte {
	b := []byte(fileVersion + "\n")
	b = appendField(b, labelPublic, id.public[:])
	b = appendField(b, labelSeed, id.key().Seed())
	if x := id.separate; x != nil {
		pub := x.Public()
		b = appendField(b, labelX25519, pub[:])
		b = appendField(b, labelX25519Priv, x.key().Bytes())
	}
	return b
}

func appendField(b []byte, label string, value []byte) []byte {
	b = append(b, label...)
	b = append(b, ' ')
	b = hex.AppendEncode(b, value)
	return append(b, '\n')
}

// parseIdentity is the inverse of text. Its errors finish the sentence
// that names the file, and quote nothing of it.
func parseIdentity(text []byte) (*Identity, error) {
	version, rest, _ := strings.Cut(string(text), "\n")
	if version != fileVersion {
		return nil, fmt.Errorf("its first line is not %q, so it is no identity file, a damaged one or one of a newer release; check the path and the release, or restore the file from a backup: %w", fileVersion, ErrMalformed)
	}
	fields := make(map[string][]byte, 4)
	for line := range strings.Lines(rest) {
		label, digits, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		value := make([]byte, 32)
		if !decodeHex(value, digits) {
			return nil, errDamaged
		}
		fields[label] = value
	}
	id, err := IdentityFromSeed(fields[labelSeed])
	if errors.Is(err, ErrWeakKey) {
		return nil, fmt.Errorf("its seed is zero, which is nobody's; restore it from a backup, or remove it to make a new identity: %w", ErrWeakKey)
	}
	if err != nil {
		return nil, errDamaged
	}
	if x := fields[labelX25519Priv]; x != nil {
		key, err := NewX25519PrivateKey(x)
		if err != nil {
			return nil, errDamaged
		}
		id = id.WithX25519(key)
	}
	// This compares the public keys too, and finds lines that are missing, in
	// another order, repeated or unknown.
	if subtle.ConstantTimeCompare(id.text(), text) != 1 {
		return nil, errDamaged
	}
	return id, nil
}

var errDamaged = fmt.Errorf("it is truncated or damaged, or its keys do not belong together; restore it from a backup, or remove it to make a new identity: %w", ErrMalformed)
