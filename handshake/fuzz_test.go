package handshake

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/internal/vectors"
	"github.com/stretchr/testify/require"
)

// fuzzInput hands out the bytes of a fuzz case, then zeros.
type fuzzInput []byte

func (in *fuzzInput) take(n int) []byte {
	b := make([]byte, n)
	*in = (*in)[copy(b, *in):]
	return b
}

// FuzzStrangers lets somebody who holds no key talk to the three machines: with
// frames of any content, frames that are right but for the signature, and what
// the machines themselves have sent. Nobody gets in.
func FuzzStrangers(f *testing.F) {
	for _, v := range v2Vectors(f) {
		for _, s := range []string{v.ChallengeFrame, v.ResponseFrame, v.ConfirmFrame} {
			f.Add(append([]byte{0, 0}, vectors.Unhex(f, s)...))
		}
	}
	for op := range byte(8) {
		f.Add(bytes.Repeat([]byte{op}, 300))
		f.Add(append([]byte{1}, bytes.Repeat([]byte{op}, 300)...))
	}
	f.Add([]byte{1, 4, 0, 4, 1, 4, 2, 4, 3, 4, 4, 4, 5})
	relay, id, stranger := testIdentity(f, 1), testIdentity(f, 2), testIdentity(f, 3).Public()
	f.Fuzz(func(t *testing.T, input []byte) {
		source := rand.NewChaCha8([32]byte{1})
		// The relay both accepts and dials: what one side signs must not serve
		// with the other.
		a := newAcceptor(t, &AcceptorConfig{Identity: relay, Rand: source, AdmitRelay: admitAll})
		d := newDialler(t, &DiallerConfig{Identity: relay, Rand: source})
		c := NewClient(&ClientConfig{Identity: id, Rand: source})
		sent := []*frame.Brep{a.Challenge(), d.Challenge()}

		in := fuzzInput(input)
		for steps := 0; len(in) > 0 && steps < 32; steps++ {
			op, arg := in.take(1)[0], in.take(1)[0]
			f := &frame.Brep{Type: frame.TypeHandshake, Sender: stranger}
			switch op % 7 {
			case 0:
				g, err := frame.DecodeBrep(in)
				if err != nil {
					g = frame.Brep{Type: frame.Type(arg), Payload: in.take(int(arg))}
				}
				f, in = &g, nil
			case 1:
				f.Payload = in.take(challengeSize)
			case 2: // answers to either challenge, v1 and v2
				f.Payload, f.Signature = a.challenge[:], [64]byte(in.take(64))
			case 3:
				x := exchange{relay.Public(), a.challenge, [32]byte{}, stranger, Role(arg % 3)}
				if arg&4 != 0 {
					x.challenge = d.challenge
				}
				f = x.answer(id) // signed by somebody, for somebody else
				if arg&8 != 0 {
					f.Signature = [64]byte(in.take(64))
				}
			case 4:
				f = sent[int(arg)%len(sent)]
			case 5:
				f.Payload, f.Signature = append([]byte{2}, in.take(4)...), [64]byte(in.take(64))
			case 6:
				f.Payload = []byte{1}
			}
			for _, m := range []machine{a, d} {
				reply, err := m.Receive(f)
				if err == nil && reply != nil {
					sent = append(sent, reply)
				}
				require.False(t, err != nil && reply != nil)
			}
			_, _ = c.Receive(f)
			_, ok := a.Peer()
			require.False(t, ok, "the acceptor let somebody in")
			_, ok = d.Relay()
			require.False(t, ok || d.verified, "the dialler let somebody in")
			_, ok = c.Relay()
			require.False(t, ok, "the client took somebody for a relay")
		}
	})
}

// FuzzTrustLine: what parses says the same when it is written again.
func FuzzTrustLine(f *testing.F) {
	f.Add("wss://a.example/ " + crypto.PublicKey{1}.String() + "\n")
	f.Add("a  b\n")
	f.Fuzz(func(t *testing.T, line string) {
		address, key, err := parseTrustLine(line)
		if err == nil {
			require.Equal(t, line, address+" "+key.String()+"\n")
		}
	})
}
