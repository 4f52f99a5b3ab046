// Web is a relay with the demo: a page to chat, send files and play with, sealed from
// browser to browser.
//
//	go run ./examples/web
//
// prints where to open it, and runs until it is interrupted. Two windows are two people
// if one of them is private. Browsers encrypt only in pages from this machine or over
// TLS, so for a phone put a proxy with TLS in front.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/demo"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport/ws"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "the `ADDRESS` to listen on")
	identity := flag.String("identity", "", "the `FILE` of the relay's key, which browsers remember; made when missing (default in the user's configuration)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *listen, *identity); err != nil {
		fmt.Fprintln(os.Stderr, "web:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, out io.Writer, listen, identity string) error {
	id, err := loadIdentity(identity)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	rl := &relay.Server{Inbox: inbox.NewMemory(nil)} // for who is away, until the end of the process
	defer rl.Close()
	web := &http.Server{Handler: routes(rl, id), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 30 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = web.Close() })
	defer stop()
	fmt.Fprintf(out, "open http://%v\n", l.Addr())
	if err := web.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// routes has the relay where the demo expects it.
func routes(rl *relay.Server, id *crypto.Identity) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/brep", ws.Handler(rl.Speak(brep.Dialect{Identity: id}), &ws.Options{}))
	mux.Handle(demo.Path, demo.Handler())
	mux.Handle("/{$}", http.RedirectHandler(demo.Path, http.StatusFound))
	return mux
}

func loadIdentity(file string) (*crypto.Identity, error) {
	if file == "" {
		dir, err := os.UserConfigDir()
		if err != nil {
			return nil, fmt.Errorf("%w; give -identity a file", err)
		}
		dir = filepath.Join(dir, "sotto")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		file = filepath.Join(dir, "example-web")
	}
	return crypto.LoadOrCreateIdentity(file)
}
