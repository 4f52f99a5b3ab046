package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func writeSettings(t *testing.T, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "sotto.conf")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func TestSettings(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	file := writeSettings(t, `# a relay
listen = ws://127.0.0.1:0
listen=tcp://127.0.0.1:0?dialect=brep

require-v2 = true
limit = brep-rate=7
log-level = error
ready = `+ready+"\n")
	r := start(t, "serve", "--config", file)
	assert.Len(t, awaitReady(t, ready).Listeners, 2)
	assert.Zero(t, r.end())
	assert.Empty(t, r.errOut.String(), "the file's log-level")

	loud := writeSettings(t, "log-level = loud\n")
	r2 := sottoIn(t, "", environment{"SOTTO_CONFIG": loud}, "serve")
	assert.Equal(t, exitUsage, r2.code)
	assert.Contains(t, r2.errOut, `not "loud"`, "the environment names the file")
	r2 = sottoIn(t, "", environment{"SOTTO_LOG_LEVEL": "louder"}, "serve", "--config", loud)
	assert.Contains(t, r2.errOut, `not "louder"`, "the environment wins over the file")
	r2 = sottoIn(t, "", environment{"SOTTO_LOG_LEVEL": "louder"}, "serve", "--config", loud, "--log-level", "loudest")
	assert.Contains(t, r2.errOut, `not "loudest"`, "the flag wins over both")
	r2 = sottoIn(t, "", nil, "serve", "--config", loud, "--help-limits")
	assert.Zero(t, r2.code, "which asks for nothing in it")
}

func TestWrongSettings(t *testing.T) {
	for text, want := range map[string]string{
		"listn = ws://127.0.0.1:0":     `sotto.conf:1: "listn" is unknown; the nearest is listen`,
		"\n# x\nlog-leve = info":       `sotto.conf:3: "log-leve" is unknown; the nearest is log-level`,
		"Listen = ws://127.0.0.1:0":    "nearest is listen",
		"listen ws://127.0.0.1:0":      "wanted is NAME = VALUE",
		"= 7":                          "is unknown",
		"drain =":                      "drain has no value",
		"drain = 1s\ndrain = 2s":       "sotto.conf:2: drain is there already",
		"drain = soon":                 "drain",
		"config = other":               "config belongs on the command line",
		"help-limits = true":           "help-limits belongs on the command line",
		"require-v2 = perhaps":         "require-v2",
		"limit = brep-rat=1":           "nearest is brep-rate",
		"limit = brep-rate=1\nlimit=x": "wants NAME=VALUE",
		"listen = wss://127.0.0.1:0":   "TLS needs",
		"\x00\xff":                     "wanted is NAME = VALUE",
		"\x1b[2J = 1":                  "is unknown",
	} {
		r := sotto(t, "serve", "--config", writeSettings(t, text))
		assert.Equal(t, exitUsage, r.code, text)
		assert.Regexp(t, "^sotto: .*"+want+".*\n$", r.errOut)
		assert.NotContains(t, r.errOut, "\x1b")
	}
}
