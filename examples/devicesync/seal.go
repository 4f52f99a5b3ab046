package main

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"sync"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay/dialect/blind"
)

// A secret is a key that the relay routes by, which is random and says nothing,
// and the key that seals what is sent there.
type secret struct {
	Epoch   int // of the document's: one more with each rotation, from 1
	Key     string
	Sealing []byte // AES-256
}

func newSecret(epoch int) secret {
	s := secret{Epoch: epoch, Key: rand.Text(), Sealing: make([]byte, 32)}
	rand.Read(s.Sealing) // never fails
	return s
}

// A keyring seals for one device. Its name is its Ed25519 key; frames are signed
// with that, and sealed with AES-256-GCM.
type keyring struct {
	self ed25519.PrivateKey

	mu      sync.Mutex
	known   map[string]bool        // names of those who share the document
	sealing map[string]cipher.AEAD // by routing key; old ones stay, for what is under way
	invited map[string]bool        // routing keys of invitations, on which strangers are heard
}

var _ blind.Sealer = (*keyring)(nil)

func newKeyring() *keyring {
	_, self, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err) // there is no randomness
	}
	return &keyring{
		self: self, known: make(map[string]bool), sealing: make(map[string]cipher.AEAD), invited: make(map[string]bool),
	}
}

func (k *keyring) name() string { return hex.EncodeToString(k.self.Public().(ed25519.PublicKey)) }

// admit makes devices known.
func (k *keyring) admit(names ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range names {
		k.known[name] = true
	}
}

// add adds a secret. One whose key is no AES-256 key is not used.
func (k *keyring) add(s secret) {
	block, err := aes.NewCipher(s.Sealing)
	if err != nil {
		return
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sealing[s.Key] = aead
}

// invite adds the secret of an invitation.
func (k *keyring) invite(s secret) {
	k.add(s)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.invited[s.Key] = true
}

var (
	errStranger = errors.New("from a stranger")
	errForged   = errors.New("forged")
	errSealed   = errors.New("sealed with a key that we do not have")
)

// Nonce returns twelve random bytes.
func (k *keyring) Nonce() string {
	var nonce [12]byte
	rand.Read(nonce[:]) // never fails
	return base64.StdEncoding.EncodeToString(nonce[:])
}

// Seal binds the ciphertext to the header, and the signature to both.
func (k *keyring) Seal(h *frame.BlindHeader, encoded, data []byte) (signature, ciphertext []byte, err error) {
	nonce, aead, err := k.opener(h)
	if err != nil {
		return nil, nil, err
	}
	ciphertext = aead.Seal(nil, nonce, data, encoded)
	return ed25519.Sign(k.self, signed(encoded, ciphertext)), ciphertext, nil
}

// Open opens what a known device has sealed, or somebody with an invitation.
func (k *keyring) Open(f *frame.BlindFrame) ([]byte, error) {
	k.mu.Lock()
	welcome := k.known[f.Header.Sender] || k.invited[f.Header.EntityID]
	k.mu.Unlock()
	sender, err := hex.DecodeString(f.Header.Sender)
	switch {
	case !welcome:
		return nil, errStranger
	case err != nil || len(sender) != ed25519.PublicKeySize || !ed25519.Verify(sender, signed(f.Encoded, f.Ciphertext), f.Signature):
		return nil, errForged
	}
	nonce, aead, err := k.opener(&f.Header)
	if err != nil {
		return nil, err
	}
	return aead.Open(nil, nonce, f.Ciphertext, f.Encoded)
}

func (k *keyring) opener(h *frame.BlindHeader) (nonce []byte, aead cipher.AEAD, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if aead = k.sealing[h.EntityID]; aead == nil {
		return nil, nil, errSealed
	}
	nonce, err = base64.StdEncoding.DecodeString(h.Nonce)
	if err != nil || len(nonce) != aead.NonceSize() {
		return nil, nil, errForged
	}
	return nonce, aead, nil
}

// signed returns what a signature is for.
func signed(encoded, ciphertext []byte) []byte {
	b := append([]byte("sotto devicesync v1\x00"), frame.AppendBlind(nil, encoded, nil, ciphertext)...)
	return b
}
