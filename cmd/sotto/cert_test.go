package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// certFiles are a certificate that is its own authority, and its key.
type certFiles struct{ cert, key string }

// params returns them as parameters of --listen.
func (c certFiles) params() string { return "?cert=" + c.cert + "&key=" + c.key }

// newCert makes a certificate for localhost that is valid for a time from now on.
func newCert(t *testing.T, dir, name string, valid time.Duration) certFiles {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-48 * time.Hour),
		NotAfter:     time.Now().Add(valid),
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:         true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	c := certFiles{filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")}
	for file, block := range map[string]*pem.Block{
		c.cert: {Type: "CERTIFICATE", Bytes: der},
		c.key:  {Type: "PRIVATE KEY", Bytes: pkcs8},
	} {
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
	return c
}
