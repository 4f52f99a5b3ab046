package certs

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Files are a certificate with its chain and its key, in two PEM files that may
// be replaced while they are in use. All methods may be called concurrently.
type Files struct {
	certFile, keyFile string
	options           FilesOptions
	current           atomic.Pointer[tls.Certificate]

	mu      sync.Mutex
	tried   [2]os.FileInfo // the files as they were when they were last loaded, or should have been
	checked time.Time
}

// FilesOptions are for LoadFiles. Zero fields mean the defaults.
type FilesOptions struct {
	// CheckEvery is the time after which a handshake looks whether the files have
	// changed (1 min).
	CheckEvery time.Duration

	// Failed, if not nil, is told when files that have changed cannot be used,
	// once for every change. The certificate before stays in use. It is called
	// from within a handshake.
	Failed func(error)
}

// LoadFiles loads a certificate; o may be nil.
func LoadFiles(certFile, keyFile string, o *FilesOptions) (*Files, error) {
	f := &Files{certFile: certFile, keyFile: keyFile}
	if o != nil {
		f.options = *o
	}
	if f.options.CheckEvery <= 0 {
		f.options.CheckEvery = time.Minute
	}
	if err := f.Reload(); err != nil {
		return nil, err
	}
	return f, nil
}

// Config returns a new TLS configuration with the certificate.
func (f *Files) Config() *tls.Config { return config(f.GetCertificate) }

// GetCertificate is for a tls.Config. It never fails.
func (f *Files) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if err := f.check(); err != nil && f.options.Failed != nil {
		f.options.Failed(err)
	}
	return f.current.Load(), nil
}

// NotAfter returns when the certificate in use expires.
func (f *Files) NotAfter() time.Time { return f.current.Load().Leaf.NotAfter }

// Reload loads the files now, changed or not. If it fails the certificate before
// stays in use.
func (f *Files) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.load(f.stat())
}

// check loads the files if they have changed. Other handshakes do not wait for it.
func (f *Files) check() error {
	if !f.mu.TryLock() {
		return nil
	}
	defer f.mu.Unlock()
	if time.Since(f.checked) < f.options.CheckEvery {
		return nil
	}
	is := f.stat()
	if same(is[0], f.tried[0]) && same(is[1], f.tried[1]) {
		return nil
	}
	return f.load(is)
}

// stat returns nil for a file that cannot be seen: it may just be being replaced.
func (f *Files) stat() (is [2]os.FileInfo) {
	f.checked = time.Now()
	for i, name := range []string{f.certFile, f.keyFile} {
		if info, err := os.Stat(name); err == nil {
			is[i] = info
		}
	}
	return is
}

func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// load loads the files, which were seen before: so a change in between shows
// later.
func (f *Files) load(is [2]os.FileInfo) error {
	f.tried = is
	c, err := tls.LoadX509KeyPair(f.certFile, f.keyFile)
	if err != nil {
		return fmt.Errorf("certs: loading %s and %s: %w", f.certFile, f.keyFile, err)
	}
	f.current.Store(&c)
	return nil
}
