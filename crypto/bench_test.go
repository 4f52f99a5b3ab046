package crypto

import (
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/mlkem"
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkPrimitives is what BenchmarkSealed is compared with: HPKE as it is, over
// 1 KiB, and the exchanges in it.
func BenchmarkPrimitives(b *testing.B) {
	message := make([]byte, 1024)
	info := make([]byte, 96)
	for _, o := range []struct {
		name string
		kem  hpke.KEM
	}{{"hpke X25519", hpke.DHKEM(ecdh.X25519())}, {"hpke X-Wing", hpke.MLKEM768X25519()}} {
		key, err := o.kem.GenerateKey()
		require.NoError(b, err)
		public := key.PublicKey()
		sealed, err := hpke.Seal(public, hpke.HKDFSHA256(), hpke.AES256GCM(), info, message)
		require.NoError(b, err)
		run(b, o.name+"/seal", func() error {
			_, err := hpke.Seal(public, hpke.HKDFSHA256(), hpke.AES256GCM(), info, message)
			return err
		})
		run(b, o.name+"/open", func() error {
			_, err := hpke.Open(key, hpke.HKDFSHA256(), hpke.AES256GCM(), info, sealed)
			return err
		})
	}

	x, err := ecdh.X25519().GenerateKey(rand.Reader)
	require.NoError(b, err)
	run(b, "X25519/exchange", func() error {
		_, err := x.ECDH(x.PublicKey())
		return err
	})
	k, err := mlkem.GenerateKey768()
	require.NoError(b, err)
	public := k.EncapsulationKey()
	_, ciphertext := public.Encapsulate()
	run(b, "ML-KEM-768/encapsulate", func() error {
		public.Encapsulate()
		return nil
	})
	run(b, "ML-KEM-768/decapsulate", func() error {
		_, err := k.Decapsulate(ciphertext)
		return err
	})

	id := generate(b)
	sig := id.Sign(message)
	run(b, "Ed25519/sign", func() error {
		id.Sign(message)
		return nil
	})
	run(b, "Ed25519/verify", func() error { return Verify(id.Public(), message, &sig) })
}

// BenchmarkGroup seals and opens 1 KiB for a group.
func BenchmarkGroup(b *testing.B) {
	k := newTestGroup(b)
	c := Content{Data: make([]byte, 1024)}
	sealed, err := k.Seal("topic", c)
	require.NoError(b, err)
	run(b, "seal", func() error {
		_, err := k.Seal("topic", c)
		return err
	})
	run(b, "open", func() error {
		_, err := k.Open("topic", sealed)
		return err
	})
}

func run(b *testing.B, name string, f func() error) {
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := f(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
