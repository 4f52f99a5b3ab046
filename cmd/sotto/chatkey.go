package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay/client"
)

// Keys of rooms: that of a group, as one line of base64 in a file, which those in the
// room pass on by themselves. It is not renewed when one of them leaves.

// newRoomKey makes a key and the file for it, which must not exist.
func newRoomKey(file string) (*crypto.GroupKey, error) {
	key, err := crypto.NewGroup()
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--new-key: %w", err)
	}
	_, err = fmt.Fprintln(f, base64.StdEncoding.EncodeToString(key.Content().Data))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(file))
	}
	return key, nil
}

func loadRoomKey(file string) (*crypto.GroupKey, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("--key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("--key: %w", err)
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("--key: other users have access to %s (mode %04o); if they cannot have read it, chmod 600 it, else make a new key", file, perm)
	}
	text, err := io.ReadAll(io.LimitReader(f, 1024))
	if err != nil {
		return nil, fmt.Errorf("--key: %w", err)
	}
	data, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(text)))
	if err == nil {
		var key *crypto.GroupKey
		if key, err = crypto.ParseGroupKey(data); err == nil {
			return key, nil
		}
	}
	return nil, fmt.Errorf("--key: %s has no key as --new-key makes them", file)
}

// loadKey makes or reads the key of the room, if there is to be one.
func (v *visit) loadKey() (err error) {
	switch {
	case v.newKey != "":
		v.key, err = newRoomKey(v.newKey)
	case v.oldKey != "":
		v.key, err = loadRoomKey(v.oldKey)
	}
	return err
}

// seal returns what is sent for a text.
func (v *visit) seal(text string) ([]byte, error) {
	if v.key == nil {
		return []byte(text), nil
	}
	return v.key.Seal(v.room, crypto.Content{Type: crypto.Raw, Data: []byte(text)})
}

// open changes what was sent into what was said. Who has sent it was verified.
func (v *visit) open(m *client.Publication) error {
	if v.key == nil || m.Gap {
		return nil
	}
	c, err := v.key.Open(v.room, m.Data)
	m.Data = c.Data
	return err
}
