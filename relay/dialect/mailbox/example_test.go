package mailbox_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/mailbox"
	"github.com/sotto-relay/sotto/relay/policy"
)

// A mailbox on the mux of a service, for the keys in a file, which is followed as it
// changes.
func Example() {
	me, friend := newIdentity(), newIdentity()
	path := writeContacts(me, friend)
	defer os.RemoveAll(filepath.Dir(path))

	contacts, err := policy.OpenKeyFile(path)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go contacts.Watch(ctx, func(_ []crypto.PublicKey, err error) {
		if err != nil {
			log.Println("the contacts before stay in use:", err)
		}
	})
	id, err := crypto.GenerateIdentity() // a service keeps one: LoadOrCreateIdentity
	if err != nil {
		log.Fatal(err)
	}
	key := id.Public()
	srv := &relay.Server{Inbox: inbox.NewMemory(nil)}
	defer srv.Close()
	mux := http.NewServeMux()
	mux.Handle("/relay/", mailbox.Handler(srv, contacts, &mailbox.Options{Relay: &key}))

	web := httptest.NewServer(mux) // elsewhere an http.Server with ReadHeaderTimeout
	defer web.Close()
	fmt.Println(exchange(web.URL, &key, me, friend))
	// Output: hello
}

// exchange sends a blob from one key to another.
func exchange(url string, key *crypto.PublicKey, me, friend *crypto.Identity) string {
	ctx := context.Background()
	sender, err := mailbox.NewClient(&mailbox.ClientOptions{URL: url, Relay: key, Identity: me})
	if err != nil {
		log.Fatal(err)
	}
	// Blobs are sealed before they get here: a relay could read them.
	if _, err := sender.Store(ctx, friend.Public(), "hello"); err != nil {
		log.Fatal(err)
	}

	reader, err := mailbox.NewClient(&mailbox.ClientOptions{URL: url, Relay: key, Identity: friend})
	if err != nil {
		log.Fatal(err)
	}
	var text string
	enough := errors.New("enough")
	err = reader.Receive(ctx, func(_ context.Context, l *mailbox.Letter) error {
		text = l.Blob
		return enough // nil would take the letter from the relay, and go on
	})
	if !errors.Is(err, enough) {
		log.Fatal(err)
	}
	return text
}

func newIdentity() *crypto.Identity {
	id, err := crypto.GenerateIdentity()
	if err != nil {
		log.Fatal(err)
	}
	return id
}

// writeContacts writes a file of contacts.
func writeContacts(ids ...*crypto.Identity) (path string) {
	dir, err := os.MkdirTemp("", "contacts")
	if err != nil {
		log.Fatal(err)
	}
	path = filepath.Join(dir, "contacts")
	text := "# who may use the mailbox\n"
	for _, id := range ids {
		text += id.String() + "\n"
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		log.Fatal(err)
	}
	return path
}
