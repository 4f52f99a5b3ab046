// Package demo is a page for browsers that shows what a relay can do: sealed messages
// and files, rooms, and games with whoever wants to play, too.
//
// The page is a program in src, on the client of sdk/js. What build makes of it is in
// dist, which is embedded. It loads nothing from elsewhere, and connects to nobody but
// the relay that serves it: it expects the brep dialect at /brep beside Path.
package demo

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"net/http"
	"strings"
	"time"
)

// Path is where a Handler expects to be.
const Path = "/demo/"

//go:embed dist
var dist embed.FS

// policy is the Content-Security-Policy: what is ours, images that the user was sent,
// and no script that is made of text.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Handler serves the page at Path, and is for any number of goroutines. Paths that are
// not below it are not found.
func Handler() http.Handler {
	tags := make(map[string]string)
	_ = fs.WalkDir(dist, "dist", func(path string, d fs.DirEntry, _ error) error { // what is embedded can be read
		if content, err := dist.ReadFile(path); err == nil {
			sum := sha256.Sum256(content)
			tags[strings.TrimPrefix(path, "dist/")] = `"` + base64.RawURLEncoding.EncodeToString(sum[:]) + `"`
		}
		return nil
	})
	return handler(tags)
}

// A handler has the entity tags of the files by their names.
type handler map[string]string

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "there is nothing to do here but to read", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path+"/" == Path {
		http.Redirect(w, r, Path, http.StatusFound)
		return
	}
	name, below := strings.CutPrefix(r.URL.Path, Path)
	if name == "" {
		name = "index.html"
	}
	tag, ok := h[name]
	if !below || !ok {
		http.NotFound(w, r)
		return
	}
	content, err := dist.ReadFile("dist/" + name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	header.Set("Cache-Control", "no-cache") // ask again, since a relay may be another version
	header.Set("ETag", tag)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
}
