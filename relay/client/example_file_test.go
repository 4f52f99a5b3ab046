package client_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay/client"
)

// A file goes from one client to another that takes files of up to 10 MiB from
// everybody. From a disk, Name, Size and Content are those of an *os.File.
func ExampleClient_SendFile() {
	ctx := context.Background()
	dial, me, friend := startRelay(), newIdentity(), newIdentity()
	dir, err := os.MkdirTemp("", "files")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	saved := make(chan string, 1)
	receiver, err := client.New(ctx, &client.Config{Identity: friend, Dial: dial, Files: &client.FilePolicy{
		Accept: client.SaveTo(dir, client.SaveLimits{Size: 10 << 20}),
		Known:  func(k crypto.PublicKey) bool { return k == me.Public() },
		Event: func(e client.FileEvent) {
			if e.Path != "" {
				saved <- e.Path
			}
		},
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer receiver.Close()

	sender, err := client.New(ctx, &client.Config{Identity: me, Dial: dial})
	if err != nil {
		log.Fatal(err)
	}
	defer sender.Close()
	text := strings.NewReader("a large file")
	err = sender.SendFile(ctx, friend.Public(), client.FileSource{
		Name: "large.txt", Size: text.Size(), Content: text,
		Progress: func(done int64) { fmt.Println(done, "bytes of", text.Size()) },
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(filepath.Base(<-saved))
	// Output:
	// 12 bytes of 12
	// large.txt
}
