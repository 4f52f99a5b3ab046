package brep

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
)

// card returns a card that is valid from a time before now, for a time, and its
// keys.
func card(t testing.TB, id *crypto.Identity, serial uint64, since, life time.Duration) (*crypto.Card, *crypto.CardKeys) {
	t.Helper()
	keys, err := crypto.GenerateCardKeys()
	require.NoError(t, err)
	from := time.Now().Add(-since)
	c, err := crypto.NewCard(id, serial, from, from.Add(life), keys)
	require.NoError(t, err)
	return c, keys
}

func put(c []byte) string {
	return fmt.Sprintf(`{"t":"put_card","card":%q,"req":1}`, base64.StdEncoding.EncodeToString(c))
}

func get(key crypto.PublicKey) string { return fmt.Sprintf(`{"t":"get_card","key":%q,"req":2}`, key) }

func gives(c *crypto.Card) string {
	return fmt.Sprintf(`{"t":"get_card","card":%q,"req":2,"ok":true}`, base64.StdEncoding.EncodeToString(c.Bytes()))
}

const (
	cardPut  = `{"t":"put_card","req":1,"ok":true}`
	notFound = `{"req":2,"ok":false,"code":"not-found","msg":"not-found"}`
)

// TestCards: the highest serial is kept, and anybody gets it until it ends.
func TestCards(t *testing.T) {
	state := inbox.NewMemoryState(nil)
	alice := identity(t, 1)
	bubble(t, func(r *rig) { r.server.State = state }, func(t *testing.T, r *rig) {
		p := r.extended(2)
		alice, bob := p[0], p[1]
		require.Equal(t, notFound, bob.ask(get(alice.id.Public())))
		seven, _ := card(t, alice.id, 7, 0, time.Hour)
		require.Equal(t, cardPut, alice.ask(put(seven.Bytes())))
		require.Equal(t, gives(seven), bob.ask(get(alice.id.Public())))
		require.Equal(t, cardPut, alice.ask(put(seven.Bytes())), "again")

		six, _ := card(t, alice.id, 6, 0, time.Hour)
		another, _ := card(t, alice.id, 7, 0, time.Hour)
		for _, c := range []*crypto.Card{six, another} {
			require.Equal(t, `{"req":1,"ok":false,"code":"denied","msg":"a card with a higher serial is here"}`, alice.ask(put(c.Bytes())))
		}
		require.Equal(t, gives(seven), bob.ask(get(alice.id.Public())))
		eight, _ := card(t, alice.id, 8, 0, 2*time.Hour)
		require.Equal(t, cardPut, alice.ask(put(eight.Bytes())))
		require.Equal(t, gives(eight), bob.ask(get(alice.id.Public())))

		time.Sleep(2*time.Hour + 2*time.Second)
		require.Equal(t, notFound, bob.ask(get(alice.id.Public())), "it has ended")
		nine, _ := card(t, alice.id, 9, 0, crypto.MaxCardLife)
		require.Equal(t, cardPut, alice.ask(put(nine.Bytes())))
	})
	bubble(t, func(r *rig) { r.server.State = state }, func(t *testing.T, r *rig) {
		require.Contains(t, r.login(alice, formExtended).ask(get(alice.Public())), `"ok":true`, "after a restart")
	})
}

func TestCardRefusals(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		p := r.extended(2)
		alice, bob := p[0], p[1]
		now, _ := card(t, alice.id, 1, 0, time.Hour)
		past, _ := card(t, alice.id, 1, 2*time.Hour, time.Hour)
		soon, _ := card(t, alice.id, 1, -clockSkew-time.Second, time.Hour)
		forged := now.Bytes()
		forged[40]++
		short := now.Bytes()[:crypto.CardSize-1]
		for name, c := range map[string]struct {
			by   *peer
			q    string
			code frame.Code
		}{
			"of another":    {bob, put(now.Bytes()), frame.CodeDenied},
			"forged":        {alice, put(forged), frame.CodeBadSignature},
			"cut":           {alice, put(short), frame.CodeMalformed},
			"past":          {alice, put(past.Bytes()), frame.CodeExpired},
			"not yet valid": {alice, put(soon.Bytes()), frame.CodeExpired},
			"no base64":     {alice, `{"t":"put_card","card":"!","req":1}`, frame.CodeMalformed},
			"stray bits":    {alice, strayBits(put(now.Bytes())), frame.CodeMalformed},
			"none":          {alice, `{"t":"put_card","req":1}`, frame.CodeMalformed},
			"no key":        {alice, `{"t":"get_card","req":1}`, frame.CodeMalformed},
			"upper case":    {alice, `{"t":"get_card","key":"` + fmt.Sprintf("%X", alice.id.Public()) + `","req":1}`, frame.CodeMalformed},
			"short key":     {alice, `{"t":"get_card","key":"00","req":1}`, frame.CodeMalformed},
		} {
			denied(t, c.code, c.by.ask(c.q))
			require.Equal(t, notFound, bob.ask(get(alice.id.Public())), name)
		}
		ahead, _ := card(t, alice.id, 1, -clockSkew, time.Hour)
		require.Equal(t, cardPut, alice.ask(put(ahead.Bytes())), "a clock that is a little ahead")
	})
}

// strayBits sets a bit in base64 that is padded with two signs, which stands for
// nothing.
func strayBits(q string) string {
	i := strings.Index(q, "==") - 1
	return q[:i] + map[byte]string{'A': "B", 'Q': "R", 'g': "h", 'w': "x"}[q[i]] + q[i+1:]
}

// TestSealedToACard: what somebody seals to a card that the relay gave him is read
// by its owner, who was away.
func TestSealedToACard(t *testing.T) {
	bubble(t, withInbox, func(t *testing.T, r *rig) {
		p := r.extended(2)
		alice, bob := p[0], p[1]
		c, keys := card(t, bob.id, 1, 0, time.Hour)
		require.Equal(t, cardPut, bob.ask(put(c.Bytes())))
		bob.leave()
		require.Equal(t, gives(c), alice.ask(get(bob.id.Public())))
		want := crypto.Content{Type: crypto.Text, Data: []byte("hello")}
		for i, suite := range []crypto.Suite{crypto.SuiteX25519, crypto.SuiteXWing} {
			f := withID(alice.frame(frame.TypeSealed), byte(i+1), frame.FlagReceipt)
			var err error
			f.Payload, f.Signature, err = crypto.Seal(alice.id, c.SealKey(suite), f.ID, want)
			require.NoError(t, err)
			alice.send(f)
			alice.hears(byte(i+1), stored)
		}
		bob = r.login(bob.id, formExtended)
		open, err := keys.OpenKeys(c)
		require.NoError(t, err)
		for range 2 {
			f := bob.took()
			got, err := crypto.OpenSealed(f.Sender, f.ID, &f.Signature, f.Payload, open...)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	})
}

// TestStateFails: a store that fails is no end, and says nothing of itself.
func TestStateFails(t *testing.T) {
	for name, c := range map[string]struct {
		state *inbox.MemoryState
		code  frame.Code
	}{
		"closed": {inbox.NewMemoryState(nil), frame.CodeInternal},
		"full":   {inbox.NewMemoryState(&inbox.MemoryOptions{MaxBytes: 1}), frame.CodeStorageFull},
	} {
		if name == "closed" {
			require.NoError(t, c.state.Close())
		}
		bubble(t, func(r *rig) { r.server.State = c.state }, func(t *testing.T, r *rig) {
			p := r.extended(2)
			alice, bob := p[0], p[1]
			mine, _ := card(t, alice.id, 1, 0, time.Hour)
			for _, q := range []string{put(mine.Bytes()), verbOf("block", bob)} {
				denied(t, c.code, alice.ask(q))
			}
			if name == "closed" {
				for _, q := range []string{get(alice.id.Public()), verbOf("unblock", bob), `{"t":"erase","req":1}`} {
					denied(t, c.code, alice.ask(q))
				}
			}
			bob.send(bob.sealed(alice.id, 1, 0, "")) // what was not kept does not hold
			require.Equal(t, frame.TypeSealed, alice.took().Type)
		})
	}
}

func verbOf(verb string, p *peer) string {
	return fmt.Sprintf(`{"t":%q,"key":%q,"req":3}`, verb, p.id.Public())
}
