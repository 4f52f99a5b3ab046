package main

import (
	"strings"
	"time"

	"github.com/urfave/cli/v3"
)

// Flags that the environment can set too, and the file of --config.

func (p *program) sources(name string) cli.ValueSourceChain {
	key := "SOTTO_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	return cli.NewValueSourceChain(&fromEnv{key, p.env}, &fromSettings{&p.settings, name})
}

func (p *program) stringFlag(name, value, usage string) *cli.StringFlag {
	return &cli.StringFlag{Name: name, Value: value, Usage: usage, Sources: p.sources(name)}
}

func (p *program) stringsFlag(name string, value []string, usage string) *cli.StringSliceFlag {
	return &cli.StringSliceFlag{Name: name, Value: value, Usage: usage, Sources: p.sources(name)}
}

func (p *program) intFlag(name string, value int, usage string) *cli.IntFlag {
	return &cli.IntFlag{Name: name, Value: value, Usage: usage, Sources: p.sources(name)}
}

func (p *program) boolFlag(name, usage string) *cli.BoolFlag {
	return &cli.BoolFlag{Name: name, Usage: usage, Sources: p.sources(name)}
}

func (p *program) durationFlag(name string, value time.Duration, usage string) *cli.DurationFlag {
	return &cli.DurationFlag{Name: name, Value: value, Usage: usage, Sources: p.sources(name)}
}
