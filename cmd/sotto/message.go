package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v3"
)

// Texts of the user's to send: of -m, or of standard input.

// maxContent is a little more than what fits in a frame: what is longer is not
// read.
const maxContent = 4 << 20

func (p *program) messageFlag() cli.Flag {
	f := p.stringFlag("message", "", "`TEXT` to send")
	f.Aliases = []string{"m"}
	return f
}

// message returns the text of -m; nil if there is none.
func message(cmd *cli.Command) *string {
	if !cmd.IsSet("message") {
		return nil
	}
	text := cmd.String("message")
	return &text
}

// readStdin reads the text. A read cannot be interrupted: if ctx ends first, it
// goes on until the program has ended.
func (p *program) readStdin(ctx context.Context) (string, error) {
	type result struct {
		text []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(p.stdin, maxContent+1))
		read <- result{text, err}
	}()
	select {
	case <-ctx.Done():
		return "", errors.New("interrupted, and nothing was sent")
	case r := <-read:
		if len(r.text) > maxContent {
			return "", tooLarge("standard input")
		}
		return strings.TrimSuffix(string(r.text), "\n"), r.err
	}
}

// A line of standard input, or why there are no more.
type line struct {
	text string
	err  error
}

// lines reads standard input line by line, until it or ctx ends; see readStdin for
// the latter.
func (p *program) lines(ctx context.Context) <-chan line {
	lines := make(chan line)
	give := func(l line) bool {
		select {
		case lines <- l:
			return true
		case <-ctx.Done():
			return false
		}
	}
	go func() {
		defer close(lines)
		s := bufio.NewScanner(p.stdin)
		s.Buffer(nil, maxContent)
		for s.Scan() {
			if !give(line{text: s.Text()}) {
				return
			}
		}
		switch err := s.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			give(line{err: errors.New("a line has more than 4 MiB")})
		case err != nil:
			give(line{err: err})
		}
	}()
	return lines
}

func tooLarge(what string) error {
	return fmt.Errorf("%s is too large: a message has 4 MiB at most, sealed and padded; files of any size can be sent, unless signed only", what)
}
