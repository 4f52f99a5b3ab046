package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNewACME(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	require.NoError(t, os.Mkdir(open, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for _, o := range []ACMEOptions{
		{CacheDir: filepath.Join(dir, "a")},
		{Hosts: []string{"a.example"}},
		{Hosts: []string{"a.example"}, CacheDir: open},
		{Hosts: []string{"a.example"}, CacheDir: filepath.Join(dir, "file")},
	} {
		_, err := NewACME(o)
		assert.Error(t, err, "%+v", o)
	}
	a, err := NewACME(ACMEOptions{Hosts: []string{"a.example"}, CacheDir: filepath.Join(dir, "new", "dir")})
	require.NoError(t, err)
	info, err := os.Stat(filepath.Join(dir, "new", "dir"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	assert.Contains(t, a.Config().NextProtos, "acme-tls/1")
	assert.Equal(t, "http/1.1", a.Config().NextProtos[0])
}

// TestOtherHosts asks for hosts that are not ours: the authority, which is not
// there, is not asked.
func TestOtherHosts(t *testing.T) {
	a, err := NewACME(ACMEOptions{
		Hosts:        []string{"a.example"},
		CacheDir:     filepath.Join(t.TempDir(), "acme"),
		DirectoryURL: "http://127.0.0.1:1/",
		HTTPClient:   &http.Client{Transport: noNetwork{t}},
	})
	require.NoError(t, err)
	for _, name := range []string{"b.example", "a.example.b.example", "", "127.0.0.1", "../a.example", "a", "*.example"} {
		_, err := a.Config().GetCertificate(&tls.ClientHelloInfo{ServerName: name})
		assert.Error(t, err, name)
	}
}

type noNetwork struct{ t *testing.T }

func (n noNetwork) RoundTrip(r *http.Request) (*http.Response, error) {
	n.t.Errorf("request to %s", r.URL)
	return nil, net.ErrClosed
}

// TestPebble gets a certificate from Pebble, the authority that the ACME people
// test with. It builds Pebble from its module, so it runs only on demand:
//
//	SOTTO_PEBBLE=1 go test -run Pebble ./transport/certs
func TestPebble(t *testing.T) {
	if os.Getenv("SOTTO_PEBBLE") == "" {
		t.Skip("SOTTO_PEBBLE is not set")
	}
	const host = "relay.example"
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "install", "github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.3")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	// The listener that wants a certificate.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()

	// The authority: its own certificate, its port, and where it finds the host.
	r := newRig(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	api := free.Addr().String()
	free.Close()
	config, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": api,
		"certificate":   r.cert,
		"privateKey":    r.key,
		"httpPort":      1,
		"tlsPort":       l.Addr().(*net.TCPAddr).Port,
		"keyAlgorithm":  "ecdsa",
		"retryAfter":    map[string]int{"authz": 1, "order": 1},
	}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600))
	pebble := exec.CommandContext(t.Context(), filepath.Join(dir, "pebble"),
		"-config", filepath.Join(dir, "config.json"), "-dnsserver", serveNames(t))
	pebble.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0")
	require.NoError(t, pebble.Start())
	defer pebble.Wait()
	defer pebble.Process.Kill()
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", api)
		if err == nil {
			c.Close()
		}
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)

	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	cache := filepath.Join(dir, "acme")
	o := ACMEOptions{
		Hosts:        []string{host},
		CacheDir:     cache,
		DirectoryURL: "https://" + api + "/dir",
		HTTPClient:   &http.Client{Transport: transport, Timeout: 10 * time.Second},
	}
	a, err := NewACME(o)
	require.NoError(t, err)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(time.Minute))
				if err := tls.Server(c, a.Config()).Handshake(); err != nil {
					t.Log(err)
				}
			}()
		}
	}()
	var serial string
	for range 2 {
		c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{ServerName: host, InsecureSkipVerify: true})
		require.NoError(t, err)
		leaf := c.ConnectionState().PeerCertificates[0]
		c.Close()
		assert.NoError(t, leaf.VerifyHostname(host))
		assert.Contains(t, leaf.Issuer.CommonName, "Pebble")
		if serial != "" {
			assert.Equal(t, serial, leaf.SerialNumber.String(), "asked for once")
		}
		serial = leaf.SerialNumber.String()
	}

	// The next program with that cache needs no authority.
	o.HTTPClient = &http.Client{Transport: noNetwork{t}}
	again, err := NewACME(o)
	require.NoError(t, err)
	c, err := again.Config().GetCertificate(&tls.ClientHelloInfo{
		ServerName:       host,
		SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256},
		SupportedCurves:  []tls.CurveID{tls.CurveP256},
		CipherSuites:     []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256},
	})
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(c.Certificate[0])
	require.NoError(t, err)
	assert.Equal(t, serial, leaf.SerialNumber.String())
}

// serveNames answers DNS queries over TCP: every name is 127.0.0.1, and has
// nothing else.
func serveNames(t *testing.T) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.SetDeadline(time.Now().Add(10 * time.Second))
			answerQuery(c)
			c.Close()
		}
	}()
	return l.Addr().String()
}

func answerQuery(c net.Conn) {
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return
	}
	b := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, b); err != nil {
		return
	}
	end := 12 // of the question: labels, a zero, type, class
	for end < len(b) && b[end] != 0 {
		end += 1 + int(b[end])
	}
	end += 5
	if end > len(b) {
		return
	}
	b = b[:end]
	copy(b[2:], []byte{0x84, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	if binary.BigEndian.Uint16(b[end-4:]) == 1 { // an A record
		b[7] = 1
		b = append(b, "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x7f\x00\x00\x01"...)
	}
	c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...))
}
