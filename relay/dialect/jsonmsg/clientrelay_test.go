package jsonmsg_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/relay/dialect/jsonmsg"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
)

// A script is the relay's end of a connection, played by the test.
type script struct {
	transport.Conn
	t testing.TB
}

// scripted returns a client and the relay that it is connected to. What comes before
// the confirmation is up to greet, which may be nil.
func scripted(t testing.TB, o *jsonmsg.ClientOptions, greet func(*script)) (*person, *script) {
	t.Helper()
	p, s, err := scriptedErr(t, o, greet)
	require.NoError(t, err)
	return p, s
}

func scriptedErr(t testing.TB, o *jsonmsg.ClientOptions, greet func(*script)) (*person, *script, error) {
	t.Helper()
	near, far := pipe.New()
	s := &script{far, t}
	t.Cleanup(func() { _ = far.Close(0, "") })
	go func() {
		if s.hear()["t"] == "register" && greet != nil {
			greet(s)
		} else {
			s.say(`{"t":"registered","addr":"ann","queued":0}`)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	c, err := jsonmsg.Connect(ctx, func(context.Context) (transport.Conn, error) { return near, nil }, o)
	if err != nil {
		return nil, s, err
	}
	t.Cleanup(func() { _ = c.Close() })
	p := &person{c, t}
	if greet == nil {
		want[*jsonmsg.Registered](p)
	}
	return p, s, nil
}

func (s *script) say(format string, args ...any) {
	s.t.Helper()
	n, err := s.Write(transport.Text, [][]byte{fmt.Appendf(nil, format, args...)})
	require.NoError(s.t, err)
	require.Equal(s.t, 1, n)
}

// hear returns the next message of the client, nil if there is none.
func (s *script) hear() map[string]any {
	s.t.Helper()
	_ = s.SetReadDeadline(time.Now().Add(5 * time.Second))
	_, msg, err := s.Read()
	if err != nil {
		return nil
	}
	var m map[string]any
	require.NoError(s.t, json.Unmarshal(msg, &m))
	return m
}

// A pen pal is somebody with a client of his own making.
type penPal struct {
	t   testing.TB
	key *crypto.X25519PrivateKey
}

// seal returns the fields nonce and ct of a message.
func (p penPal) seal(to crypto.X25519Key, text string) string {
	p.t.Helper()
	nonce, box, err := crypto.SealBox(p.key, to, []byte(text))
	require.NoError(p.t, err)
	return fmt.Sprintf(`"nonce":"%s","ct":"%s"`, base64.StdEncoding.EncodeToString(nonce[:]), base64.StdEncoding.EncodeToString(box))
}

// TestClientOpens: what becomes of messages, by what they bring and what is pinned
// (case CR-08).
func TestClientOpens(t *testing.T) {
	key, bob, eve := newKey(t), penPal{t, newKey(t)}, penPal{t, newKey(t)}
	ann, pub, evil := key.Public(), bob.key.Public().String(), eve.key.Public().String()
	hash := bob.key.Public().Address()
	message := func(from string) jsonmsg.Event {
		return &jsonmsg.Message{From: from, Key: bob.key.Public(), Data: []byte("hi")}
	}
	peerKey := func(from string) jsonmsg.Event { return &jsonmsg.PeerKey{Peer: from, Key: bob.key.Public()} }
	changed := &jsonmsg.KeyChangedError{Peer: "bob", Pinned: bob.key.Public(), Got: eve.key.Public()}
	from := func(addr string, fields ...string) string {
		return `{"t":"deliver","from":"` + addr + `",` + strings.Join(fields, ",") + `}`
	}
	withPub := func(k string) string { return `"pub":"` + k + `"` }
	box := bob.seal(ann, "hi")
	n24, c16 := `"nonce":"`+strings.Repeat("A", 32)+`"`, `"ct":"`+strings.Repeat("A", 22)+`=="`
	for _, c := range []struct {
		name string
		say  []string
		want []any // events, or the errors of Unreadable ones
	}{
		{"the key that it brings", []string{from("bob", withPub(pub), box)}, []any{peerKey("bob"), message("bob")}},
		{"no key at all", []string{from("bob", box)}, []any{jsonmsg.ErrNoKey}},
		{"the pinned one", []string{from("bob", withPub(pub), `"ct":""`), from("bob", box)}, []any{peerKey("bob"), message("bob")}},
		{"announced without a ct", []string{from("bob", withPub(pub)), from("bob", box)}, []any{peerKey("bob"), message("bob")}},
		{"another than the pinned one", []string{from("bob", withPub(pub), `"ct":""`), from("bob", withPub(evil), eve.seal(ann, "hi"))},
			[]any{peerKey("bob"), changed}},
		{"announced another", []string{from("bob", withPub(pub), `"ct":""`), from("bob", withPub(evil), `"ct":""`), from("bob", box)},
			[]any{peerKey("bob"), &jsonmsg.PeerKey{Peer: "bob", Key: eve.key.Public(), Err: changed}, message("bob")}},
		{"a key that does not open it is not pinned", []string{from("bob", withPub(evil), box), from("bob", withPub(pub), box)},
			[]any{crypto.ErrOpen, peerKey("bob"), message("bob")}},
		{"an address that is a hash", []string{from(hash, withPub(pub), box)}, []any{peerKey(hash), message(hash)}},
		{"a hash of another key", []string{from(hash, withPub(evil), eve.seal(ann, "hi")), from(hash, withPub(evil), `"ct":""`)},
			[]any{&jsonmsg.ForeignKeyError{Peer: hash, Got: eve.key.Public()},
				&jsonmsg.PeerKey{Peer: hash, Key: eve.key.Public(), Err: &jsonmsg.ForeignKeyError{Peer: hash, Got: eve.key.Public()}}}},
		{"it is ourselves, with another key", []string{from("ann", withPub(pub), box)},
			[]any{&jsonmsg.KeyChangedError{Peer: "ann", Pinned: ann, Got: bob.key.Public()}}},
		{"twice the same box", []string{from("bob", withPub(pub), box), from("bob", withPub(pub), box)}, []any{peerKey("bob"), message("bob")}},
		{"for somebody else", []string{from("bob", withPub(pub), bob.seal(eve.key.Public(), "hi"))}, []any{crypto.ErrOpen}},
		{"a nonce of 12 bytes", []string{from("bob", withPub(pub), `"nonce":"AAAAAAAAAAAAAAAA"`, c16)}, []any{crypto.ErrMalformed}},
		{"no nonce", []string{from("bob", withPub(pub), c16)}, []any{crypto.ErrMalformed}},
		{"a ct of 15 bytes", []string{from("bob", withPub(pub), n24, `"ct":"`+strings.Repeat("A", 20)+`"`)}, []any{crypto.ErrMalformed}},
		{"a ct of 16 bytes", []string{from("bob", withPub(pub), n24, c16)}, []any{crypto.ErrOpen}},
		{"a ct with bits left over", []string{from("bob", withPub(pub), n24, `"ct":"`+strings.Repeat("A", 21)+`B=="`)}, []any{crypto.ErrMalformed}},
		{"a ct with newlines", []string{from("bob", withPub(pub), n24, `"ct":"AAAA\n`+strings.Repeat("A", 18)+`=="`)}, []any{crypto.ErrMalformed}},
		{"a ct in base64url", []string{from("bob", withPub(pub), n24, `"ct":"`+strings.Repeat("-", 22)+`=="`)}, []any{crypto.ErrMalformed}},
		{"a key in hex", []string{from("bob", withPub(hex.EncodeToString(ann[:])), box)}, []any{crypto.ErrMalformed}},
		{"a key of 31 bytes", []string{from("bob", withPub(base64.StdEncoding.EncodeToString(ann[1:])), box)}, []any{crypto.ErrMalformed}},
		{"a weak key", []string{from("bob", withPub(strings.Repeat("A", 43)+"="), n24, c16)}, []any{crypto.ErrWeakKey}},
		{"no sender", []string{`{"t":"deliver",` + withPub(pub) + `,` + box + `}`}, []any{nil}},
		{"no text", []string{from("bob", `"id":"x"`)}, []any{jsonmsg.ErrNoKey}},
		{"no JSON", []string{`{"t":"deliver"`, "", "\xff", `{"t":"deliver","t":"deliver"}`}, []any{nil, nil, nil, nil}},
		{"of a type to come", []string{`{"t":"hologram","from":"bob"}`, `{}`, `{"t":1}`}, nil},
		{"acks and the like of wrong types", []string{`{"t":"ack","from":1,"id":{}}`, `{"t":"queued"}`, `{"t":"matched"}`, `{"t":"message"}`},
			[]any{&jsonmsg.Ack{}, &jsonmsg.Queued{}, &jsonmsg.Matched{}, &jsonmsg.Publication{}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, s := scripted(t, &jsonmsg.ClientOptions{Address: "ann", Key: key}, nil)
				for _, msg := range c.say {
					s.say("%s", msg)
				}
				for _, w := range c.want {
					if _, ok := w.(jsonmsg.Event); ok {
						assert.Equal(t, w, p.next(time.Second))
						continue
					}
					u := want[*jsonmsg.Unreadable](p)
					switch w := w.(type) {
					case *jsonmsg.KeyChangedError, *jsonmsg.ForeignKeyError:
						assert.Equal(t, w, u.Err)
					case error:
						assert.ErrorIs(t, u.Err, w)
					case nil:
						assert.Error(t, u.Err)
					}
				}
				p.silent()
			})
		})
	}
}

// TestClientFlippedBits: no bit of nonce or box can be changed (case CR-09).
func TestClientFlippedBits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key, bob := newKey(t), penPal{t, newKey(t)}
		p, s := scripted(t, &jsonmsg.ClientOptions{Address: "ann", Key: key}, nil)
		nonce, box, err := crypto.SealBox(bob.key, key.Public(), []byte("hi"))
		require.NoError(t, err)
		deliver := func(nonce, box []byte) {
			s.say(`{"t":"deliver","from":"bob","pub":"%s","nonce":"%s","ct":"%s"}`, bob.key.Public(),
				base64.StdEncoding.EncodeToString(nonce), base64.StdEncoding.EncodeToString(box))
		}
		for _, b := range [][]byte{nonce[:], box} {
			for i := range 8 * len(b) {
				b[i/8] ^= 1 << (i % 8)
				deliver(nonce[:], box)
				assert.ErrorIs(t, want[*jsonmsg.Unreadable](p).Err, crypto.ErrOpen)
				b[i/8] ^= 1 << (i % 8)
			}
		}
		deliver(nonce[:], box)
		want[*jsonmsg.PeerKey](p)
		want[*jsonmsg.Message](p)
	})
}

// TestClientVectors: boxes that libsodium made.
func TestClientVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/nacl_box.json")
	require.NoError(t, err)
	var file struct {
		Cases []struct {
			APublic  string `json:"a_public"`
			BPrivate string `json:"b_private"`
			Nonce    string
			Message  string
			Salsa    string `json:"xsalsa20poly1305"`
			ChaCha   string `json:"xchacha20poly1305"`
		}
	}
	require.NoError(t, json.Unmarshal(data, &file))
	require.NotEmpty(t, file.Cases)
	recode := func(digits string) (string, []byte) {
		b, err := hex.DecodeString(digits)
		require.NoError(t, err)
		return base64.StdEncoding.EncodeToString(b), b
	}
	for i, c := range file.Cases {
		for name, box := range map[string]string{"salsa": c.Salsa, "chacha": c.ChaCha} {
			t.Run(fmt.Sprint(i, name), func(t *testing.T) {
				_, private := recode(c.BPrivate)
				pub, _ := recode(c.APublic)
				nonce, _ := recode(c.Nonce)
				ct, _ := recode(box)
				_, message := recode(c.Message)
				key, err := crypto.NewX25519PrivateKey(private)
				require.NoError(t, err)
				synctest.Test(t, func(t *testing.T) {
					p, s := scripted(t, &jsonmsg.ClientOptions{Address: "ann", Key: key}, nil)
					s.say(`{"t":"deliver","from":"bob","pub":"%s","nonce":"%s","ct":"%s"}`, pub, nonce, ct)
					want[*jsonmsg.PeerKey](p)
					assert.True(t, bytes.Equal(message, want[*jsonmsg.Message](p).Data))
				})
			})
		}
	}
}

// TestClientReflection: a relay that sends a box back to who made it.
func TestClientReflection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bob := penPal{t, newKey(t)}
		p, s := scripted(t, named("ann"), nil)
		s.say(`{"t":"deliver","from":"bob","pub":"%s","ct":""}`, bob.key.Public())
		want[*jsonmsg.PeerKey](p)
		assert.Equal(t, "", s.hear()["ct"], "ours in return")
		require.NoError(t, p.Send(context.Background(), "bob", "", []byte("pay eve")))
		m := s.hear()
		s.say(`{"t":"deliver","from":"bob","nonce":"%s","ct":"%s"}`, m["nonce"], m["ct"])
		p.silent()
	})
}

// TestClientAnnounces: who is told our key, and how often.
func TestClientAnnounces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bob := penPal{t, newKey(t)}
		p, s := scripted(t, named("ann"), nil)
		announce := func(from string) {
			s.say(`{"t":"deliver","from":"%s","pub":"%s","ct":""}`, from, bob.key.Public())
		}
		ours := func(to string) {
			t.Helper()
			assert.Equal(t, map[string]any{"t": "send", "to": to, "pub": p.Key().String(), "nonce": "", "ct": ""}, s.hear())
		}
		nothing := func() {
			t.Helper()
			assert.Nil(t, s.hear())
		}
		announce("bob")
		ours("bob")
		announce("bob") // as somebody does who always answers
		nothing()
		time.Sleep(10 * time.Second)
		announce("bob") // who may have lost it
		ours("bob")

		require.NoError(t, p.Announce(context.Background(), "carl"))
		ours("carl")
		announce("carl")
		nothing() // it is an answer
		announce("ann")
		nothing()

		want[*jsonmsg.PeerKey](p)
		want[*jsonmsg.PeerKey](p)
		for i := range 1500 { // a relay that makes people up
			announce(fmt.Sprint("bot", i))
			want[*jsonmsg.PeerKey](p)
		}
		answers := 0
		for s.hear() != nil {
			answers++
		}
		assert.Greater(t, answers, 200)
		assert.Less(t, answers, 300)
	})
}

// TestClientChallenge: a challenge that is not made for us, by the relay that we
// know, is not answered (spec json.md, "register").
func TestClientChallenge(t *testing.T) {
	key, pin := newKey(t), newIdentity(t).Public()
	const label = "sotto json proof v1\x00"
	secret := strings.Repeat("s", 32)
	challenge := func(relay crypto.PublicKey, plain string) string {
		once := newKey(t)
		nonce, box, err := crypto.SealBox(once, key.Public(), []byte(plain))
		require.NoError(t, err)
		b64 := base64.StdEncoding.EncodeToString
		return fmt.Sprintf(`{"t":"challenge","relay":"%s","epk":"%s","nonce":"%s","box":"%s"}`,
			b64(relay[:]), once.Public(), b64(nonce[:]), b64(box))
	}
	other := newIdentity(t).Public()
	good := challenge(pin, label+string(pin[:])+secret)
	for _, c := range []struct {
		name, challenge string
		fits            bool
	}{
		{"good", good, true},
		{"another relay", challenge(other, label+string(other[:])+secret), false},
		{"passed on from another relay", challenge(pin, label+string(other[:])+secret), false},
		{"longer", challenge(pin, label+string(pin[:])+secret+"s"), false},
		{"shorter", challenge(pin, label+string(pin[:])+secret[1:]), false},
		{"another label", challenge(pin, "sotto json proof v2\x00"+string(pin[:])+secret), false},
		{"a message of somebody's", challenge(pin, strings.Repeat("x", 84)), false},
		{"empty", `{"t":"challenge"}`, false},
		{"not for us", strings.Replace(good, `"box":"`, `"box":"AAAA`, 1), false},
		{"a weak key", strings.Replace(good, good[strings.Index(good, `"epk":"`)+7:][:44], strings.Repeat("A", 43)+"=", 1), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				trust := new(handshake.MemoryTrust)
				require.NoError(t, trust.Remember("there", pin))
				answer := make(chan map[string]any, 1)
				p, _, err := scriptedErr(t, &jsonmsg.ClientOptions{Key: key, Prove: true, Trust: trust, RelayAddress: "there", Reconnect: true},
					func(s *script) {
						s.say("%s", c.challenge)
						m := s.hear()
						answer <- m
						if m != nil {
							s.say(`{"t":"registered","addr":"x","queued":3}`)
						}
					})
				if !c.fits {
					require.Error(t, err)
					assert.Nil(t, <-answer)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, map[string]any{"t": "proof", "proof": base64.StdEncoding.EncodeToString([]byte(secret))}, <-answer)
				assert.Equal(t, &jsonmsg.Registered{Queued: 3, Proven: true}, want[*jsonmsg.Registered](p))
			})
		})
	}
	t.Run("later", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, s := scripted(t, &jsonmsg.ClientOptions{Key: key, Relay: &pin}, nil)
			s.say("%s", good)
			assert.Nil(t, s.hear(), "it opens nothing that it has not asked for")
		})
	})
}

// TestClientErrors: which error is whose.
func TestClientErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		p, s := scripted(t, named("ann"), nil)
		failed := make(chan error, 1)
		go func() { _, err := p.Join(ctx, "hall"); failed <- err }()
		m := s.hear()
		s.say(`{"t":"error","msg":"room full","id":"somebody else's"}`)
		s.say(`{"t":"error","msg":"rate limit exceeded"}`)
		s.say(`{"t":"error","msg":"room full","id":"%s"}`, m["id"])
		assert.Equal(t, &jsonmsg.RelayError{Reason: "room full", ID: m["id"].(string)}, <-failed)
		assert.Equal(t, &jsonmsg.RelayError{Reason: "room full", ID: "somebody else's"}, want[*jsonmsg.RelayError](p))
		e := want[*jsonmsg.RelayError](p)
		assert.ErrorIs(t, e, jsonmsg.ErrRateLimited)
		assert.Equal(t, `json: the relay says "a\nb"`, (&jsonmsg.RelayError{Reason: "a\nb"}).Error(), "a stranger's words")
		p.silent()

		pins := new(jsonmsg.MemoryPins)
		require.NoError(t, pins.Remember("bob", newKey(t).Public()))
		p, s = scripted(t, &jsonmsg.ClientOptions{Address: "ann", Pins: pins}, nil)
		assert.ErrorIs(t, p.Send(ctx, "bob", "", make([]byte, 50_000)), transport.ErrTooLarge)
		assert.ErrorIs(t, p.Send(ctx, "bob", "\xff", nil), jsonmsg.ErrText)
		assert.ErrorIs(t, p.Send(ctx, "", "", nil), jsonmsg.ErrInvalidAddr)
		_, err := p.Join(ctx, "\xff")
		assert.ErrorIs(t, err, jsonmsg.ErrText)
		_, err = p.Join(ctx, strings.Repeat("x", 70_000))
		assert.ErrorIs(t, err, transport.ErrTooLarge)
		assert.Error(t, p.Ack(ctx, &jsonmsg.Message{From: "bob"}), "no id")
		assert.Nil(t, s.hear(), "nothing of these is sent")
		require.NoError(t, p.Send(ctx, "bob", "", make([]byte, 48_900)))
		assert.NotNil(t, s.hear())
	})
}

// TestClientLateMatch: a match that nobody waits for any more is told of.
func TestClientLateMatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := scripted(t, named("ann"), nil)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := p.FindMatch(ctx, "pong")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, "find_match", s.hear()["t"])
		s.say(`{"t":"matched","game":"pong","peer":"bob"}`)
		assert.Equal(t, map[string]any{"t": "cancel_match", "game": "pong"}, s.hear())
		assert.Equal(t, &jsonmsg.Matched{Game: "pong", Peer: "bob"}, want[*jsonmsg.Matched](p))
	})
}

// TestClientUntaken: while too much waits to be taken nothing is read, and what waits
// for an answer is told.
func TestClientUntaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		p, s := scripted(t, named("ann"), nil)
		for i := range 1024 {
			s.say(`{"t":"ack","from":"bob","id":"%d"}`, i)
			synctest.Wait()
		}
		for i := range 128 { // what a pipe holds
			s.say(`{"t":"ack","from":"bob","id":"%d"}`, 1024+i)
		}
		synctest.Wait()
		n, err := s.Conn.(transport.TryWriter).TryWrite(transport.Text, [][]byte{[]byte("{}")})
		require.NoError(t, err)
		assert.Zero(t, n, "it is not read")
		begin := time.Now()
		_, err = p.Join(ctx, "hall")
		assert.ErrorIs(t, err, jsonmsg.ErrUntaken)
		err = p.Send(ctx, "bob", "", nil)
		assert.ErrorIs(t, err, jsonmsg.ErrUntaken)
		assert.ErrorIs(t, err, jsonmsg.ErrNoKey)
		assert.Less(t, time.Since(begin), 21*time.Second)
		for i := range 1024 + 128 {
			assert.Equal(t, fmt.Sprint(i), want[*jsonmsg.Ack](p).ID)
		}
		p.silent()
	})
}

// TestClientBacklog: Connect returns while a backlog is still on its way, which may be
// more than what waits for the application.
func TestClientBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := scripted(t, named("ann"), func(s *script) {
			for i := range 3000 {
				msg := fmt.Appendf(nil, `{"t":"ack","from":"bob","id":"%d"}`, i)
				for n := 0; n == 0; { // waits for room
					n, _ = s.Write(transport.Text, [][]byte{msg})
				}
			}
			s.say(`{"t":"registered","addr":"ann","queued":3000}`)
		})
		for i := range 3000 {
			require.Equal(t, fmt.Sprint(i), want[*jsonmsg.Ack](p).ID)
		}
		assert.Equal(t, &jsonmsg.Registered{Queued: 3000}, want[*jsonmsg.Registered](p))
	})
}

// TestClientLastWords: a relay that says why it ends the connection is heard, also if
// writing fails first.
func TestClientLastWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pipe.New()
		s := &script{far, t}
		conn := &brokenConn{Conn: near, broken: make(chan struct{})}
		go func() {
			s.hear()
			s.say(`{"t":"registered","addr":"ann","queued":0}`)
		}()
		p := connect(t, func(context.Context) (transport.Conn, error) { return conn, nil },
			&jsonmsg.ClientOptions{Address: "ann", Reconnect: true})
		want[*jsonmsg.Registered](p)
		close(conn.broken)
		go func() { _ = p.SendRoom(context.Background(), "hall", "") }()
		synctest.Wait()
		s.say(`{"t":"error","msg":"address taken over by a new connection"}`)
		_ = far.Close(transport.ClosePolicy, "")
		want[*jsonmsg.RelayError](p)
		assert.ErrorIs(t, p.ended(), jsonmsg.ErrTakenOver)
	})
	synctest.Test(t, func(t *testing.T) { // one that says nothing
		near, far := pipe.New()
		s := &script{far, t}
		conn := &brokenConn{Conn: near, broken: make(chan struct{})}
		go func() {
			s.hear()
			s.say(`{"t":"registered","addr":"ann","queued":0}`)
		}()
		p := connect(t, func(context.Context) (transport.Conn, error) { return conn, nil }, named("ann"))
		want[*jsonmsg.Registered](p)
		close(conn.broken)
		assert.ErrorIs(t, p.SendRoom(context.Background(), "hall", ""), errBroken)
		assert.ErrorIs(t, p.ended(), errBroken)
		_ = far.Close(0, "")
	})
}

var errBroken = fmt.Errorf("broken: %w", net.ErrClosed)

// A brokenConn cannot be written to once it is broken.
type brokenConn struct {
	transport.Conn
	broken chan struct{}
}

func (c *brokenConn) Write(k transport.Kind, msgs [][]byte) (int, error) {
	select {
	case <-c.broken:
		return 0, errBroken
	default:
		return c.Conn.Write(k, msgs)
	}
}

// TestClientSilentRelay: one that does not answer a registration.
func TestClientSilentRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		_, _, err := scriptedErr(t, named("ann"), func(*script) {})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 30*time.Second, time.Since(begin))
	})
}

// TestClientTooLarge: a message over the limit is skipped, and told of.
func TestClientTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := scripted(t, named("ann"), nil)
		s.say(`{"t":"message","topic":"a","from":"bob","ct":"%s"}`, strings.Repeat("x", 3*65_536))
		s.say(`{"t":"message","topic":"a","from":"bob","ct":"%s"}`, strings.Repeat("x", 65_536))
		assert.ErrorIs(t, want[*jsonmsg.Unreadable](p).Err, transport.ErrTooLarge)
		want[*jsonmsg.Publication](p)
	})
}
