package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDocsNameFlags holds that the flags in all pages and in what is deployed are
// those of the program.
func TestDocsNameFlags(t *testing.T) {
	known := map[string]bool{
		"--help": true, "--version": true,
		// of Docker, and of COPY in its file
		"--stop-timeout": true, "--from": true, "--chown": true,
		// of the client in Python
		"--address": true, "--to": true, "--text": true, "--wait": true,
	}
	for _, cmd := range (&program{}).command().Commands {
		for _, c := range append(cmd.Commands, cmd) {
			for _, f := range c.Flags {
				known["--"+f.Names()[0]] = true
			}
		}
	}
	var files []string
	for _, pattern := range []string{"*.md", "docs/*.md", "deploy/*"} {
		found, err := filepath.Glob(filepath.Join("../..", pattern))
		require.NoError(t, err)
		require.NotEmpty(t, found, pattern)
		files = append(files, found...)
	}
	flag := regexp.MustCompile(`(?m)(?:^|[\s` + "`" + `("'])(--[a-z][a-z0-9-]*)`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range flag.FindAllStringSubmatch(string(text), -1) {
			assert.True(t, known[m[1]], "%s: %s", file, m[1])
		}
	}
	conf, err := os.ReadFile("../../deploy/sotto.conf")
	require.NoError(t, err)
	p := &program{}
	p.serveCommand()
	_, err = p.settings.parse(conf)
	assert.NoError(t, err)
}
