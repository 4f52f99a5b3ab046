package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newPair returns a self-signed certificate for a.example with that serial
// number, and its key, as PEM.
func newPair(t testing.TB, serial int64) (cert, key []byte) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		NotAfter:     time.Unix(4e9+serial, 0),
		DNSNames:     []string{"a.example"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	require.NoError(t, err)
	raw, err := x509.MarshalECPrivateKey(k)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw})
}

type rig struct {
	*testing.T
	cert, key string
	failed    []error
	f         *Files
}

func newRig(t *testing.T) *rig {
	dir := t.TempDir()
	r := &rig{T: t, cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem")}
	cert, key := newPair(t, 1)
	r.write(r.cert, cert)
	r.write(r.key, key)
	var err error
	r.f, err = LoadFiles(r.cert, r.key, &FilesOptions{Failed: func(err error) { r.failed = append(r.failed, err) }})
	require.NoError(t, err)
	return r
}

// write puts a new file in the place of an old one.
func (r *rig) write(name string, b []byte) {
	r.Helper()
	require.NoError(r, os.WriteFile(name+".new", b, 0o600))
	require.NoError(r, os.Rename(name+".new", name))
}

func (r *rig) serial() int64 {
	c, err := r.f.GetCertificate(&tls.ClientHelloInfo{ServerName: "whatever"})
	require.NoError(r, err)
	assert.Equal(r, c.Leaf.NotAfter, r.f.NotAfter())
	return c.Leaf.SerialNumber.Int64()
}

func TestFilesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		assert.EqualValues(t, 1, r.serial())
		cert, key := newPair(t, 2)

		r.write(r.cert, cert) // half of a pair
		assert.EqualValues(t, 1, r.serial(), "looked at within the minute")
		assert.Empty(t, r.failed)
		for range 3 {
			time.Sleep(time.Minute)
			assert.EqualValues(t, 1, r.serial())
			assert.Len(t, r.failed, 1, "told once")
		}
		r.write(r.key, key)
		time.Sleep(time.Minute)
		assert.EqualValues(t, 2, r.serial())
		assert.Equal(t, time.Unix(4e9+2, 0).UTC(), r.f.NotAfter())

		for _, broken := range [][]byte{nil, []byte("garbage"), cert[:100]} {
			r.write(r.cert, broken)
			time.Sleep(time.Minute)
			assert.EqualValues(t, 2, r.serial())
		}
		require.NoError(t, os.Remove(r.key))
		time.Sleep(time.Minute)
		assert.EqualValues(t, 2, r.serial())
		assert.Len(t, r.failed, 5)
		for _, err := range r.failed {
			assert.ErrorContains(t, err, r.cert)
			assert.NotContains(t, err.Error(), "PRIVATE")
		}

		cert, key = newPair(t, 3)
		r.write(r.cert, cert)
		r.write(r.key, key)
		time.Sleep(time.Minute)
		assert.EqualValues(t, 3, r.serial())
		assert.Len(t, r.failed, 5)
	})
}

func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		cert, key := newPair(t, 2)
		r.write(r.cert, cert)
		require.Error(t, r.f.Reload())
		assert.EqualValues(t, 1, r.serial())
		r.write(r.key, key)
		require.NoError(t, r.f.Reload())
		assert.EqualValues(t, 2, r.serial())
		time.Sleep(time.Hour)
		assert.EqualValues(t, 2, r.serial())
		assert.Empty(t, r.failed)
	})
}

func TestLoadFilesFails(t *testing.T) {
	r := newRig(t)
	for _, names := range [][2]string{{"", ""}, {r.cert, r.cert}, {r.key, r.key}, {r.cert + "x", r.key}} {
		f, err := LoadFiles(names[0], names[1], nil)
		assert.Nil(t, f)
		assert.Error(t, err)
	}
}

func TestConfig(t *testing.T) {
	r := newRig(t)
	acme, err := NewACME(ACMEOptions{Hosts: []string{"a.example"}, CacheDir: r.TempDir() + "/acme"})
	require.NoError(t, err)
	pair := append(bytes.Clone(read(t, r.key)), read(t, r.cert)...)
	require.NoError(t, acme.manager.Cache.Put(t.Context(), "a.example", pair))
	for name, config := range map[string]*tls.Config{"files": r.f.Config(), "acme": acme.Config()} {
		for _, test := range []struct {
			client *tls.Config
			want   uint16 // version; 0 for a failure
			proto  string
		}{
			{&tls.Config{}, tls.VersionTLS13, ""},
			{&tls.Config{MaxVersion: tls.VersionTLS12}, tls.VersionTLS12, ""},
			{&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, 0, ""},
			{&tls.Config{NextProtos: []string{"h2", "http/1.1"}}, tls.VersionTLS13, "http/1.1"},
		} {
			a, b := net.Pipe()
			test.client.ServerName = "a.example"
			test.client.InsecureSkipVerify = true
			done := make(chan error, 1)
			go func() { done <- tls.Server(b, config).Handshake() }()
			client := tls.Client(a, test.client)
			err := client.Handshake()
			if test.want == 0 {
				assert.Error(t, err, name)
				assert.Error(t, <-done, name)
			} else {
				assert.NoError(t, err, name)
				assert.NoError(t, <-done, name)
				state := client.ConnectionState()
				assert.Equal(t, test.want, state.Version, name)
				assert.Equal(t, test.proto, state.NegotiatedProtocol, name)
				assert.EqualValues(t, 1, state.PeerCertificates[0].SerialNumber.Int64(), name)
			}
			a.Close()
			b.Close()
		}
	}
}

func read(t testing.TB, name string) []byte {
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	return b
}
