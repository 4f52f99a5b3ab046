package main

import (
	"fmt"
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

// intFlag is for numbers of which zero stands for none: usage says what that means.
func (p *program) intFlag(name string, value int, usage string) *cli.IntFlag {
	return &cli.IntFlag{Name: name, Value: value, Usage: usage, HideDefault: value == 0, Sources: p.sources(name)}
}

func (p *program) boolFlag(name, usage string) *cli.BoolFlag {
	return &cli.BoolFlag{Name: name, Usage: usage, Sources: p.sources(name)}
}

// timeout returns the value of --timeout.
func timeout(cmd *cli.Command) (time.Duration, error) {
	d := cmd.Duration("timeout")
	if d <= 0 {
		return 0, fmt.Errorf("--timeout %v leaves no time", d)
	}
	return d, nil
}

func (p *program) durationFlag(name string, value time.Duration, usage string) *cli.DurationFlag {
	return &cli.DurationFlag{Name: name, Value: value, Usage: usage, Sources: p.sources(name)}
}
