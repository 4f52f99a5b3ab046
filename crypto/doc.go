// Package crypto is the cryptography of the clients and of the handshakes: it
// signs and verifies, seals and opens, and keeps an identity in a file.
//
// It invents nothing: the primitives come from the standard library,
// golang.org/x/crypto and filippo.io/edwards25519, and the formats from the
// specifications (brep.md, native.md, json.md), which each file names. It does
// no network I/O and knows no frames: it takes and returns payloads, keys and
// signatures. The part of a relay that forwards messages must not import it.
//
// Every Ed25519 signature of the project is verified by [Verify], every X25519
// exchange refuses low-order points, and no exported function takes a nonce to
// encrypt with. Randomness comes from crypto/rand, which ends the process when the
// system has none to give: there is no fallback and no error to forget.
//
// Everything here may be called from any goroutine at any time. Identities and
// keys are immutable.
package crypto

import "errors"

// The errors that callers tell apart. All are wrapped or returned as they are,
// so compare with errors.Is.
var (
	// ErrWeakKey refuses a public key with a small order or a non-canonical
	// encoding, and a secret key of zeros.
	ErrWeakKey = errors.New("crypto: weak or non-canonical key")

	// ErrSignature says that a signature is not by that key over those bytes.
	ErrSignature = errors.New("crypto: signature does not verify")

	// ErrOpen says that a ciphertext does not open, and never why.
	ErrOpen = errors.New("crypto: message does not open")

	// ErrMalformed says that bytes or text do not have the required form.
	ErrMalformed = errors.New("crypto: malformed")

	// ErrUnknownKey says that a message is sealed to none of the keys given.
	ErrUnknownKey = errors.New("crypto: sealed to a key that is not held")
)
