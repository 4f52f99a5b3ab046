package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/urfave/cli/v3"
)

// settings give flags the values that a file has for them. Each line is a
// flag's name, "=" and its value; empty lines and those that begin with "#" say
// nothing, and a flag that may be repeated may have several lines. It is read
// when the first value is looked up, which is after --config has been parsed.
type settings struct {
	path  string // empty: none
	flags []cli.Flag

	once   sync.Once
	values map[string]string
	err    error
}

// maxConfig is much more than anybody writes, in bytes.
const maxConfig = 1 << 20

// load reads the file, once. The error is a *runError when it could not be read,
// and wrong usage when it could and makes no sense.
func (s *settings) load() error {
	s.once.Do(func() {
		if s.path == "" {
			return
		}
		text, err := readConfig(s.path)
		if err != nil {
			s.err = failed(fmt.Errorf("--config: %w", err))
			return
		}
		s.values, s.err = s.parse(text)
	})
	return s.err
}

func readConfig(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err == nil && len(text) > maxConfig {
		err = fmt.Errorf("%s has more than 1 MiB, and is hardly a configuration", path)
	}
	return text, err
}

func (s *settings) parse(text []byte) (map[string]string, error) {
	repeatable := make(map[string]bool)
	for _, f := range s.flags {
		_, list := f.(*cli.StringSliceFlag)
		repeatable[f.Names()[0]] = list
	}
	values := make(map[string]string)
	number := 0
	for line := range bytes.Lines(text) {
		number++
		entry := strings.TrimSpace(string(line))
		if entry == "" || strings.HasPrefix(entry, "#") {
			continue
		}
		name, value, ok := strings.Cut(entry, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		fail := func(err error) (map[string]string, error) {
			return nil, fmt.Errorf("%s:%d: %w", s.path, number, err)
		}
		list, known := repeatable[name]
		switch before, given := values[name]; {
		case !ok:
			return fail(errors.New("wanted is NAME = VALUE"))
		case name == "config" || name == "help-limits":
			return fail(fmt.Errorf("%s belongs on the command line", name))
		case !known:
			return fail(fmt.Errorf("%q is unknown; the nearest is %s", name, nearest(name, s.names())))
		case value == "":
			return fail(fmt.Errorf("%s has no value", name))
		case given && !list:
			return fail(fmt.Errorf("%s is there already, and may not be repeated", name))
		case given:
			values[name] = before + "," + value // as a flag takes a list
		default:
			values[name] = value
		}
	}
	return values, nil
}

// names returns what may stand in the file.
func (s *settings) names() []string {
	var names []string
	for _, f := range s.flags {
		if name := f.Names()[0]; name != "config" && name != "help-limits" {
			names = append(names, name)
		}
	}
	return names
}

// fromSettings is the value of one flag in a file.
type fromSettings struct {
	file *settings
	name string
}

func (f *fromSettings) Lookup() (string, bool) {
	if f.file.load() != nil {
		return "", false // and load will say so again
	}
	value, ok := f.file.values[f.name]
	return value, ok
}

func (f *fromSettings) String() string { return f.file.path }

func (f *fromSettings) GoString() string { return f.String() }
