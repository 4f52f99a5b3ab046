package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/inbox/disk"
	"github.com/sotto-relay/sotto/relay"
)

func TestInbox(t *testing.T) {
	data := t.TempDir()
	bob, key := inbox.Address{Realm: relay.RealmJSON, Name: "b\x1bob"}, inbox.Address{Realm: relay.RealmBrep, Name: strings.Repeat("\xab", 32)}
	synctest.Test(t, func(t *testing.T) { // in the year 2000, so that what expires has done so
		db, err := disk.Open(storeDir(data), nil)
		require.NoError(t, err)
		put := func(to, from inbox.Address, text string, ttl time.Duration) {
			e := &inbox.Entry{To: to, From: from, Data: []byte(text), Stored: time.Now()}
			if ttl > 0 {
				e.Expires = e.Stored.Add(ttl)
			}
			done := make(chan inbox.Result, 1)
			db.Inbox().Put(t.Context(), e, inbox.Quota{}, func(r inbox.Result) { done <- r })
			require.NoError(t, (<-done).Err)
		}
		put(bob, inbox.Address{Realm: relay.RealmJSON, Name: "alice"}, "secret text", 0)
		put(key, key, "secret", 0)
		put(key, key, "secret", time.Hour)
		require.NoError(t, db.Close())
	})
	empty := t.TempDir()
	require.NoError(t, os.Mkdir(storeDir(empty), 0o700))
	hexKey := "brep:" + strings.Repeat("ab", 32)

	for _, c := range []struct {
		args string
		want string // of output; or what is said of the failure
		code int
	}{
		{"", "one of ls, show", exitUsage},
		{"ls", "inbox ls wants DIR", exitUsage},
		{"show DIR", "inbox show wants DIR TO", exitUsage},
		{"ls DIR more", "wants DIR", exitUsage},
		{"ls " + t.TempDir(), "there is no store in", exitFailed},
		{"check " + empty, "is no store; see whether", exitFailed},
		{"check " + empty, "is no store; see whether", exitFailed}, // still
		{"ls DIR", hexKey + `  2         12     `, 0},
		{"ls DIR", `json:b\x1bob `, 0},
		{"ls DIR --json", `{"to":"` + hexKey + `","messages":2,"bytes":12,"oldest":"`, 0},
		{"show DIR json:b\x1bob", "json:alice  11     ", 0},
		{"show DIR " + hexKey + " --json", `{"number":2,"from":"` + hexKey + `","bytes":6,"stored":"`, 0},
		{"purge", "inbox purge wants DIR [TO]", exitUsage},
		{"purge DIR json:a json:b", "inbox purge wants DIR [TO]", exitUsage},
		{"show DIR nobody", `TO: "nobody" is no recipient, such as json:alice`, exitUsage},
		{"show DIR brep:ab", "64 hex digits", exitUsage},
		{"purge DIR brep:ab", "64 hex digits", exitUsage},
		{"check DIR", "3 messages of 23 bytes and 0 values are sound", 0},
		{"purge DIR", "1 messages deleted", 0},
		{"purge DIR", "0 messages deleted", 0},
		{"purge DIR " + hexKey + " --json", `{"deleted":1}`, 0},
		{"ls DIR --help", "sotto inbox ls [options] DIR", 0},
		{"--help DIR", "compact ", 0},
		{"compact DIR", "", 0},
		{"check DIR --json", `{"messages":1,"bytes":11,"values":0}`, 0},
	} {
		args := []string{"inbox"}
		for a := range strings.FieldsSeq(c.args) {
			if a == "DIR" {
				a = data
			}
			args = append(args, a)
		}
		got := sotto(t, args...)
		assert.Equal(t, c.code, got.code, c.args)
		assert.Contains(t, got.out+got.errOut, c.want, c.args)
		assert.NotContains(t, got.out+got.errOut, "secret", c.args)
	}
}

// A store in use is nobody else's.
func TestInboxInUse(t *testing.T) {
	data := t.TempDir()
	r := serve(t, "--data", data)
	got := sotto(t, "inbox", "ls", data)
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.errOut, data)
	assert.Zero(t, r.end())
	assert.Zero(t, sotto(t, "inbox", "ls", data).code)
}

// TestQuarantine: a store that is damaged is refused, by serve and by inbox, with a
// sentence that names the file, and stays as it is; with --quarantine the relay goes
// on with what can be read.
func TestQuarantine(t *testing.T) {
	data := t.TempDir()
	db, err := disk.Open(storeDir(data), nil)
	require.NoError(t, err)
	for range 100 {
		e := &inbox.Entry{To: inbox.Address{Realm: relay.RealmJSON, Name: "bob"}, Data: make([]byte, 1000)}
		done := make(chan inbox.Result, 1)
		db.Inbox().Put(t.Context(), e, inbox.Quota{}, func(r inbox.Result) { done <- r })
		require.NoError(t, (<-done).Err)
	}
	require.NoError(t, db.Close())
	logs, err := filepath.Glob(filepath.Join(storeDir(data), "db", "*.log"))
	require.NoError(t, err)
	for _, name := range logs { // or all of it would be read from there
		require.NoError(t, os.Remove(name))
	}
	tables, err := filepath.Glob(filepath.Join(storeDir(data), "db", "*.sst"))
	require.NoError(t, err)
	require.Len(t, tables, 1)
	table, err := os.OpenFile(tables[0], os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = table.WriteAt([]byte("damaged"), 50_000)
	require.NoError(t, err)
	require.NoError(t, table.Close())

	for _, args := range [][]string{
		{"serve", "--listen", "ws://127.0.0.1:0", "--data", data}, {"inbox", "ls", data}, {"inbox", "check", data}, {"inbox", "purge", data},
	} {
		got := sotto(t, args...)
		assert.Equal(t, exitFailed, got.code, args)
		assert.Contains(t, got.errOut, tables[0]+" is damaged; restore a backup, or start with quarantine (sotto serve --quarantine)", args)
	}
	r := serve(t, "--data", data, "--quarantine")
	r.wants(&r.errOut, "was damaged, has been moved aside.*messages=9[0-9] ")
	assert.Zero(t, r.end())
	aside, err := filepath.Glob(filepath.Join(storeDir(data), "*.bad-*"))
	require.NoError(t, err)
	assert.Len(t, aside, 2, "the marker and the tables")
	assert.Regexp(t, "^9[0-9] messages .* are sound", sotto(t, "inbox", "check", data).out)
	assert.Zero(t, serve(t, "--data", data).end())
}
