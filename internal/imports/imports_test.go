package imports

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const module = "github.com/sotto-relay/sotto/"

// allowed says which packages of the project a package may import, beside
// internal/..., which all may. A trailing slash stands for everything below. A
// package that matches no key may import nothing; examples and cmd may import
// all. Test files are not counted.
var allowed = []struct {
	packages []string
	imports  []string
}{
	{[]string{"frame", "crypto", "transport", "inbox", "pubsub", "demo", "internal/"}, nil},
	{[]string{"handshake"}, []string{"crypto", "frame"}},
	{[]string{"transport/ws", "transport/tcp", "transport/udp", "transport/pipe", "transport/transporttest",
		"transport/proxyproto", "transport/certs"}, []string{"transport"}},
	{[]string{"inbox/disk", "inbox/nats", "inbox/inboxtest"}, []string{"inbox"}},
	// transport/pipe is for Server.Dial: it imports the standard library alone.
	{[]string{"relay"}, []string{"transport", "transport/pipe", "inbox", "pubsub"}},
	{[]string{"relay/dialect/blind/audit"}, []string{"frame"}},
	{[]string{"relay/dialect/blind"}, []string{"relay", "frame", "transport", "inbox", "relay/dialect/blind/audit"}},
	{[]string{"relay/dialect/brep", "relay/dialect/jsonmsg", "relay/dialect/mailbox", "relay/policy", "mesh"},
		[]string{"relay", "frame", "transport", "inbox", "crypto", "handshake"}},
	{[]string{"relay/client"}, []string{"relay", "frame", "transport", "inbox", "pubsub", "crypto", "handshake", "relay/dialect/brep"}},
	{[]string{"relay/metrics"}, []string{"relay"}},
	{[]string{"relay/relaytest"}, []string{"relay", "transport", "transport/pipe", "inbox", "crypto", "relay/dialect/brep", "relay/client"}},
	{[]string{"cluster"}, []string{"relay", "inbox", "pubsub"}},
	{[]string{"examples/", "cmd/"}, []string{""}},
}

// linked says which modules of others a program links with a package. A
// package that is missing here links none.
var linked = map[string][]string{
	// Pebble and what it brings.
	"inbox/disk": {
		"github.com/DataDog/zstd", "github.com/RaduBerinde/axisds", "github.com/RaduBerinde/btreemap",
		"github.com/beorn7/perks", "github.com/cespare/xxhash/v2", "github.com/cockroachdb/crlib",
		"github.com/cockroachdb/errors", "github.com/cockroachdb/logtags", "github.com/cockroachdb/pebble/v2",
		"github.com/cockroachdb/redact", "github.com/cockroachdb/swiss", "github.com/cockroachdb/tokenbucket",
		"github.com/getsentry/sentry-go", "github.com/gogo/protobuf", "github.com/golang/snappy",
		"github.com/klauspost/compress", "github.com/kr/pretty", "github.com/kr/text", "github.com/minio/minlz",
		"github.com/munnerz/goautoneg", "github.com/pkg/errors", "github.com/prometheus/client_golang",
		"github.com/prometheus/client_model", "github.com/prometheus/common", "github.com/prometheus/procfs",
		"github.com/rogpeppe/go-internal", "golang.org/x/exp", "golang.org/x/sys", "golang.org/x/text",
		"google.golang.org/protobuf",
	},
	"relay":                 {"golang.org/x/time"},
	"relay/dialect/blind":   {"golang.org/x/time"},
	"relay/dialect/jsonmsg": {"filippo.io/edwards25519", "golang.org/x/crypto", "golang.org/x/time"},
	"relay/dialect/mailbox": {"filippo.io/edwards25519", "golang.org/x/crypto", "golang.org/x/time"},
	"mesh":                  {"filippo.io/edwards25519", "golang.org/x/crypto", "golang.org/x/time"},
	"transport/udp":         {"golang.org/x/net", "golang.org/x/sys"},
	"relay/client":          {"filippo.io/edwards25519", "golang.org/x/crypto", "golang.org/x/time"},
	"relay/dialect/brep":    {"filippo.io/edwards25519", "golang.org/x/crypto", "golang.org/x/time"},
	"relay/policy":          {"filippo.io/edwards25519", "golang.org/x/crypto", "golang.org/x/time"},
	"relay/metrics": {
		"github.com/beorn7/perks", "github.com/cespare/xxhash/v2", "github.com/munnerz/goautoneg",
		"github.com/prometheus/client_golang", "github.com/prometheus/client_model", "github.com/prometheus/common",
		"github.com/prometheus/procfs", "golang.org/x/sys", "golang.org/x/time", "google.golang.org/protobuf",
	},
	"transport/certs":      {"golang.org/x/crypto", "golang.org/x/net", "golang.org/x/text"},
	"transport/proxyproto": {"github.com/pires/go-proxyproto"},
	"transport/ws":         {"github.com/gorilla/websocket"},
	"handshake":            {"filippo.io/edwards25519", "golang.org/x/crypto"},
	"crypto":               {"filippo.io/edwards25519", "golang.org/x/crypto"},
}

// owners says who alone may import a module.
var owners = map[string]string{
	"github.com/gorilla/websocket":     "transport/ws",
	"github.com/cockroachdb/pebble/v2": "inbox/disk",
	"golang.org/x/net":                 "transport/udp",
	"golang.org/x/sys":                 "transport/udp",
	"github.com/nats-io/nats.go":       "/nats",
	"github.com/pires/go-proxyproto":   "transport/proxyproto",
	"github.com/urfave/cli/v3":         "cmd/sotto",
}

// blind are the packages that reach no cryptography, and nothing that does.
var blind = []string{"relay", "relay/dialect/blind", "relay/dialect/blind/audit"}

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Module     *struct {
		Path string
		Main bool
	}
}

// list returns the packages that the arguments of go list name.
func list(t *testing.T, args ...string) map[string]*pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,Deps,Module"}, args...)...)
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	pkgs := make(map[string]*pkg)
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(pkg)
		err := d.Decode(p)
		if errors.Is(err, io.EOF) {
			return pkgs
		}
		require.NoError(t, err)
		pkgs[p.ImportPath] = p
	}
}

func matches(pattern, name string) bool {
	return pattern == name || pattern == "" || strings.HasSuffix(pattern, "/") && strings.HasPrefix(name, pattern)
}

func TestTable(t *testing.T) {
	for path, p := range list(t, "./...") {
		name := strings.TrimPrefix(path, module)
		var may []string
		known := false
		for _, rule := range allowed {
			if slices.ContainsFunc(rule.packages, func(pattern string) bool { return matches(pattern, name) }) {
				may, known = append(may, rule.imports...), true
			}
		}
		assert.True(t, known, "%s is not in the table", name)
		for _, imp := range p.Imports {
			if imp, ours := strings.CutPrefix(imp, module); ours && !strings.HasPrefix(imp, "internal/") {
				assert.True(t, slices.ContainsFunc(may, func(pattern string) bool { return matches(pattern, imp) }),
					"%s may not import %s", name, imp)
				continue
			}
			for mod, owner := range owners {
				if imp == mod || strings.HasPrefix(imp, mod+"/") {
					assert.True(t, strings.HasSuffix(name, owner), "%s may not import %s", name, imp)
				}
			}
		}
	}
}

// TestArchitecture: the table in ARCHITECTURE.md has every package, by its path or
// the end of it.
func TestArchitecture(t *testing.T) {
	page, err := os.ReadFile("../../ARCHITECTURE.md")
	require.NoError(t, err)
	for path := range list(t, "./...") {
		name := strings.TrimPrefix(path, module)
		if strings.HasPrefix(name, "examples/") {
			continue
		}
		found := false
		for end := name; end != "" && !found; _, end, _ = strings.Cut(end, "/") {
			found = bytes.Contains(page, []byte("`"+end+"`"))
		}
		assert.True(t, found, name)
	}
}

func TestBlind(t *testing.T) {
	all := list(t, "./...")
	for _, name := range blind {
		p := all[module+name]
		if p == nil {
			continue // not there yet
		}
		for _, dep := range p.Deps {
			assert.False(t, isCrypto(dep), "%s reaches %s", name, dep)
		}
	}
}

func isCrypto(path string) bool {
	ours, _ := strings.CutPrefix(path, module)
	return ours == "crypto" || strings.HasPrefix(ours, "crypto/") ||
		strings.HasPrefix(path, "golang.org/x/crypto") || strings.HasPrefix(path, "filippo.io/") ||
		path == "net/http" || path == "expvar"
}

func TestLinked(t *testing.T) {
	deps := list(t, "-deps", "./...")
	for path, p := range deps {
		name, ours := strings.CutPrefix(path, module)
		if !ours || strings.HasPrefix(name, "cmd/") || strings.HasPrefix(name, "examples/") || strings.HasSuffix(name, "test") {
			continue
		}
		var mods []string
		for _, dep := range p.Deps {
			if m := deps[dep].Module; m != nil && !m.Main && !slices.Contains(mods, m.Path) {
				mods = append(mods, m.Path)
			}
		}
		slices.Sort(mods)
		assert.Equal(t, linked[name], mods, "modules that %s links", name)
	}
}
