package relaytest_test

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/relay/relaytest"
	"github.com/sotto-relay/sotto/transport"
)

// identities are those that names stand for.
var identities = func() map[string]*crypto.Identity {
	ids := make(map[string]*crypto.Identity)
	for _, name := range []string{"relay", "alice", "bob", "carol", "eve", "nobody"} {
		seed := sha256.Sum256([]byte(name))
		id, err := crypto.IdentityFromSeed(seed[:])
		if err != nil {
			panic(err)
		}
		ids[name] = id
	}
	return ids
}()

func identity(name string) *crypto.Identity { return identities[name] }

func readFrame(c transport.Conn) (frame.Brep, error) {
	_, msg, err := c.Read()
	if err != nil {
		return frame.Brep{}, err
	}
	return frame.DecodeBrep(msg)
}

func writeFrame(c transport.Conn, f *frame.Brep) error {
	_, err := c.Write(transport.Binary, [][]byte{f.Append(nil)})
	return err
}

// loginV2 runs the handshake of an extended session.
func loginV2(c transport.Conn, name string) error {
	h := handshake.NewClient(&handshake.ClientConfig{Identity: identity(name)})
	for {
		f, err := readFrame(c)
		if err != nil {
			return err
		}
		reply, err := h.Receive(&f)
		if err != nil {
			return err
		}
		if _, done := h.Relay(); done {
			return nil
		}
		if err := writeFrame(c, reply); err != nil {
			return err
		}
	}
}

// loginV1 runs the handshake of a legacy session, as a client that knows of no
// other.
func loginV1(c transport.Conn, name string) error {
	challenge, err := readFrame(c)
	if err != nil {
		return err
	}
	id := identity(name)
	err = writeFrame(c, &frame.Brep{
		Type: frame.TypeHandshake, Sender: id.Public(),
		Signature: id.Sign(challenge.Payload), Payload: challenge.Payload,
	})
	if err != nil {
		return err
	}
	confirmation, err := readFrame(c)
	if err == nil && string(confirmation.Payload) != "\x01" {
		err = errors.New("not a v1 confirmation")
	}
	return err
}

func dataFrame(from, to, text string) *frame.Brep {
	key := identity(to).Public()
	return &frame.Brep{
		Type: frame.TypeData, Sender: identity(from).Public(),
		Payload: append(key[:], text...),
	}
}

func legacyMessage(from, to, text string) (transport.Kind, []byte) {
	return transport.Binary, dataFrame(from, to, text).Append(nil)
}

func extendedMessage(from, to, text string) (transport.Kind, []byte) {
	f := dataFrame(from, to, text)
	f.Flags = frame.FlagReceipt
	binary.LittleEndian.PutUint64(f.ID[:], rand.Uint64())
	return transport.Binary, f.Append(nil)
}

// sealedMessage is one only in its layout, which is all that a relay knows.
func sealedMessage(from, to, text string) (transport.Kind, []byte) {
	f := dataFrame(from, to, "")
	f.Type = frame.TypeSealed
	f.Payload = append(f.Payload, make([]byte, 1+8+32+16)...)
	f.Payload = append(f.Payload, text...)
	return transport.Binary, f.Append(nil)
}

func frameText(_ transport.Kind, msg []byte) (string, bool) {
	f, err := frame.DecodeBrep(msg)
	switch {
	case err != nil:
		return "", false
	case f.Type == frame.TypeData:
		return string(f.Payload[32:]), true
	case f.Type == frame.TypeSealed:
		return string(f.Payload[32+1+8+32+16:]), true
	}
	return "", false
}

func frameAck(msg []byte) (transport.Kind, []byte) {
	f, err := frame.DecodeBrep(msg)
	if err != nil {
		panic(err)
	}
	a := frame.Ack{Sender: f.Sender, ID: f.ID}
	return transport.Binary, (&frame.Brep{Type: frame.TypeAck, Payload: a.Append(nil)}).Append(nil)
}

func TestBrep(t *testing.T) {
	dialect := brep.Dialect{Identity: identity("relay")}
	t.Run("Legacy", func(t *testing.T) {
		relaytest.TestDialect(t, relaytest.DialectConfig{
			Dialect: dialect, Login: loginV1, Message: legacyMessage, Text: frameText,
		})
	})
	t.Run("Extended", func(t *testing.T) {
		relaytest.TestDialect(t, relaytest.DialectConfig{
			Dialect: dialect, Login: loginV2, Message: extendedMessage, Text: frameText, Ack: frameAck,
			Narrow: &relaytest.NarrowForm{Login: loginV1, Message: sealedMessage},
		})
	})
}
