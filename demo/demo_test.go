package demo_test

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/demo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ask(method, path string, header ...string) *http.Response {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	demo.Handler().ServeHTTP(w, r)
	return w.Result()
}

// files are those that are served, by name, as they are in the repository.
func files(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	require.NoError(t, fs.WalkDir(os.DirFS("dist"), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile("dist/" + path)
		all[path] = string(content)
		return err
	}))
	return all
}

func TestHandler(t *testing.T) {
	for _, c := range []struct {
		method, path string
		status       int
		kind         string
	}{
		{"GET", "/demo/", 200, "text/html; charset=utf-8"},
		{"HEAD", "/demo/", 200, "text/html; charset=utf-8"},
		{"GET", "/demo/app.js", 200, "text/javascript; charset=utf-8"},
		{"GET", "/demo/app.css", 200, "text/css; charset=utf-8"},
		{"GET", "/demo/icon.svg", 200, "image/svg+xml"},
		{"GET", "/demo", 302, "text/html; charset=utf-8"},
		{"GET", "/demo/none", 404, "text/plain; charset=utf-8"},
		{"GET", "/demo/dist/app.js", 404, "text/plain; charset=utf-8"},
		{"GET", "/demo/../demo.go", 404, "text/plain; charset=utf-8"},
		{"GET", "/demo//app.js", 404, "text/plain; charset=utf-8"},
		{"GET", "/app.js", 404, "text/plain; charset=utf-8"},
		{"GET", "/", 404, "text/plain; charset=utf-8"},
		{"POST", "/demo/", 405, "text/plain; charset=utf-8"},
	} {
		resp := ask(c.method, c.path)
		assert.Equal(t, c.status, resp.StatusCode, "%s %s", c.method, c.path)
		assert.Equal(t, c.kind, resp.Header.Get("Content-Type"), "%s %s", c.method, c.path)
	}
	tag := ask("GET", "/demo/app.js").Header.Get("ETag")
	assert.Equal(t, 304, ask("GET", "/demo/app.js", "If-None-Match", tag).StatusCode)
	assert.Equal(t, 200, ask("GET", "/demo/app.css", "If-None-Match", tag).StatusCode)
}

// TestPolicy holds that each file comes with the policy, word by word: what it leaves
// out is allowed.
func TestPolicy(t *testing.T) {
	want := map[string]string{
		"default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "connect-src": "'self'",
		"img-src": "'self' data: blob:", "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'",
		"require-trusted-types-for": "'script'", "trusted-types": "'none'",
	}
	all := files(t)
	require.Contains(t, all, "index.html")
	for name := range all {
		if name == "index.html" {
			name = ""
		}
		header := ask("GET", demo.Path+name).Header
		require.Len(t, header.Values("Content-Security-Policy"), 1)
		got := make(map[string]string)
		for directive := range strings.SplitSeq(header.Get("Content-Security-Policy"), ";") {
			what, sources, _ := strings.Cut(strings.TrimSpace(directive), " ")
			got[what] = sources
		}
		assert.Equal(t, want, got, name)
		for name, value := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-cache",
		} {
			assert.Equal(t, value, header.Get(name))
		}
	}
}

// TestPage holds that the page has no script and no style of its own, and names nothing
// that is elsewhere or is not there.
func TestPage(t *testing.T) {
	all := files(t)
	page := all["index.html"]
	assert.Len(t, regexp.MustCompile(`<script`).FindAllString(page, -1), 1)
	assert.Contains(t, page, `<script type="module" src="app.js"></script>`)
	assert.NotRegexp(t, `(?i)<style|\sstyle=|\son[a-z]+=`, page)
	links := regexp.MustCompile(`(?:src|href)="([^"#]+)"`).FindAllStringSubmatch(page, -1)
	require.NotEmpty(t, links)
	for _, link := range links {
		assert.Contains(t, all, link[1])
	}
	assert.NotRegexp(t, `url\(|@import`, all["app.css"])
	assert.Contains(t, all["licenses.txt"], "MIT License")
	for name, content := range all {
		if strings.HasSuffix(name, ".js") {
			assert.NotRegexp(t, `\binnerHTML\b|\bouterHTML\b|insertAdjacentHTML|document\.write|\beval\(|new Function`, content, name)
			assert.NotContains(t, content, "sourceMappingURL", name)
			for _, imported := range regexp.MustCompile(`"\./(chunk-[^"]+\.js)"`).FindAllStringSubmatch(content, -1) {
				assert.Contains(t, all, imported[1], name)
			}
		}
	}
}
