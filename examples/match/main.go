// Match is tic-tac-toe between two terminals that know nothing of each other: the
// relay finds an opponent for who asks, and carries moves that it cannot read.
//
//	go run ./examples/match
//
// runs to its end by itself: it has a relay of its own, and plays both sides. With a
// relay that others reach too,
//
//	go run ./examples/match -relay ws://127.0.0.1:8080/json
//
// waits for somebody who does the same. The relay says only at which address he is;
// since the address is the hash of his key, it cannot put itself in between.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/jsonmsg"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/ws"
)

func main() {
	url := flag.String("relay", "", "the `URL` of a relay; without it the program plays by itself")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *url == "" {
		err = playBoth(ctx, os.Stdout)
	} else {
		err = (&player{dial: ws.Dialer(*url, nil), choose: ask(os.Stdin, os.Stdout), out: os.Stdout}).play(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "match:", err)
		os.Exit(1)
	}
}

// game is what opponents look for: others play other games at the same relay.
const game = "sotto example tic-tac-toe"

// A player is one side.
type player struct {
	dial   transport.Dialer
	choose func(board, byte) (int, error) // the move of a mark
	out    io.Writer
}

// play finds an opponent and plays one game.
func (p *player) play(ctx context.Context) error {
	key, err := crypto.GenerateX25519()
	if err != nil {
		return err
	}
	c, err := jsonmsg.Connect(ctx, p.dial, &jsonmsg.ClientOptions{Key: key})
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Fprintln(p.out, "waiting for an opponent")
	opponent, err := c.FindMatch(ctx, game)
	if err != nil {
		return err
	}
	if !crypto.IsAddress(opponent) {
		return errors.New("the opponent's address is not the hash of a key")
	}
	var own byte = 'X' // and X begins: both know who that is
	if c.Address() > opponent {
		own = 'O'
	}
	fmt.Fprintf(p.out, "you are %c\n", own)

	var b board
	for mark := byte('X'); b.winner() == 0 && !b.isFull(); mark = other(mark) {
		var at int
		if mark == own {
			if at, err = p.choose(b, own); err == nil {
				err = c.Send(ctx, opponent, "", []byte(strconv.Itoa(at)))
			}
		} else {
			at, err = p.receive(ctx, c, opponent)
		}
		if err == nil {
			err = b.place(at, mark)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(p.out, "%c:\n%v", mark, b)
	}
	if w := b.winner(); w != 0 {
		fmt.Fprintf(p.out, "%c wins\n", w)
	} else {
		fmt.Fprintln(p.out, "a draw")
	}
	return nil
}

// receive waits for the opponent's move.
func (p *player) receive(ctx context.Context, c *jsonmsg.Client, opponent string) (int, error) {
	for event, err := range c.Events(ctx) {
		if err != nil {
			return 0, err
		}
		switch e := event.(type) {
		case *jsonmsg.Message: // sealed with the key whose hash the address is
			if e.From == opponent {
				return strconv.Atoi(string(e.Data))
			}
		case *jsonmsg.Queued:
			fmt.Fprintln(p.out, "the opponent is away; your move waits for him")
		case *jsonmsg.RelayError:
			return 0, e
		}
	}
	return 0, ctx.Err()
}

// ask returns a function that asks a person for a move.
func ask(in io.Reader, out io.Writer) func(board, byte) (int, error) {
	lines := bufio.NewScanner(in)
	return func(b board, mark byte) (int, error) {
		for {
			fmt.Fprintf(out, "where do you put %c? (1 to 9) ", mark)
			if !lines.Scan() {
				return 0, errors.Join(errors.New("no move"), lines.Err())
			}
			n, err := strconv.Atoi(lines.Text())
			if err == nil {
				err = b.place(n-1, mark) // on a copy
			}
			if err == nil {
				return n - 1, nil
			}
			fmt.Fprintln(out, "that does not do")
		}
	}
}

// playBoth plays both sides, over pipes, and shows what X sees.
func playBoth(ctx context.Context, out io.Writer) error {
	srv := &relay.Server{Logger: slog.New(slog.DiscardHandler)}
	defer srv.Close()
	dial := func(context.Context) (transport.Conn, error) { return srv.Dial(jsonmsg.Dialect{}), nil }
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	second := make(chan error, 1)
	go func() {
		err := (&player{dial: dial, choose: best, out: io.Discard}).play(ctx)
		if err != nil {
			cancel()
		}
		second <- err
	}()
	first := (&player{dial: dial, choose: best, out: out}).play(ctx)
	if first != nil {
		cancel()
	}
	return errors.Join(first, <-second)
}
