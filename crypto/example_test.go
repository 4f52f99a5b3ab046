package crypto_test

import (
	"crypto/rand"
	"fmt"
	"log"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// A sealed message is a frame: package frame has its layout, this one makes and
// opens what is in it. Neither needs a relay.
func ExampleSeal() {
	ann, errAnn := crypto.GenerateIdentity()
	bob, errBob := crypto.GenerateIdentity()
	if errAnn != nil || errBob != nil {
		log.Fatal(errAnn, errBob)
	}

	// Ann knows Bob's public key. (Of one who has a Card, she takes the key in that.)
	to, err := bob.Public().SealKey()
	if err != nil {
		log.Fatal(err)
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	payload, sig, err := crypto.Seal(ann, to, id, crypto.Content{Type: crypto.Text, Data: []byte("hello")})
	if err != nil {
		log.Fatal(err)
	}
	out := frame.Brep{Type: frame.TypeSealed, ID: id, Sender: ann.Public(), Signature: sig, Payload: payload}
	wire := out.Append(nil)

	// Bob has what came over the wire.
	in, err := frame.DecodeBrep(wire)
	if err != nil {
		log.Fatal(err)
	}
	key, err := bob.OpenKey()
	if err != nil {
		log.Fatal(err)
	}
	content, err := crypto.OpenSealed(in.Sender, in.ID, &in.Signature, in.Payload, key)
	fmt.Println(string(content.Data), err)

	in.ID[0] ^= 1 // under another id it is not what Ann has sent
	_, err = crypto.OpenSealed(in.Sender, in.ID, &in.Signature, in.Payload, key)
	fmt.Println(err)
	// Output:
	// hello <nil>
	// crypto: signature does not verify
}
