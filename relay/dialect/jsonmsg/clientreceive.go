package jsonmsg

import (
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"strconv"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
)

// An incoming message.
type incoming struct {
	frame.Object
	raw []byte
}

// text returns what a field says, empty if it is no string.
func (m *incoming) text(field string) string { return string(m.Text(m.Get(field))) }

// receive handles one message. An error ends the connection.
func (l *clientLink) receive(msg []byte) error {
	m := &l.in
	if m.Parse(msg) != nil {
		l.c.in.add(&Unreadable{Err: errNotJSON})
		return nil
	}
	defer m.Reset()
	m.raw = msg
	t := m.text("t")
	l.last = nil
	switch t {
	case "challenge":
		return l.prove(m)
	case "registered":
		l.confirmed(m)
		return nil
	case "error":
		return l.failed(m)
	}
	if !l.datagrams { // a datagram can be older than its session
		l.accept()
	}
	switch t {
	case "deliver":
		l.c.deliver(m)
	case "ack":
		l.c.in.add(&Ack{From: m.text("from"), ID: m.text("id")})
	case "queued":
		l.c.in.add(&Queued{To: m.text("to"), ID: m.text("id")})
	case "room_deliver":
		l.c.in.add(&RoomMessage{Room: m.text("room"), From: m.text("from"), CT: m.text("ct")})
	case "message":
		retained, _ := m.Get("retained").Bool()
		l.c.in.add(&Publication{Topic: m.text("topic"), From: m.text("from"), CT: m.text("ct"), Retained: retained})
	case "matched":
		if l.c.answered(t, m) == nil {
			l.c.in.add(&Matched{Game: m.text("game"), Peer: m.text("peer")})
		}
	case "unsubscribed":
		if !l.session.answered(m.text("topic"), l.c.o.Keepalive) {
			l.c.answered(t, m)
		}
	default: // of types to come nothing is known
		l.c.answered(t, m)
	}
	return nil
}

// confirmed takes the confirmation of a registration. In datagrams it may come again,
// with another token.
func (l *clientLink) confirmed(m *incoming) {
	if l.datagrams {
		token := m.text("token")
		if token == "" {
			return
		}
		l.say(l.dress(l.session.renewed(token)))
	}
	l.accept()
	if !l.registered {
		l.registered = true
		queued, _ := strconv.Atoi(string(m.Get("queued")))
		l.c.in.add(&Registered{Queued: queued, Proven: l.proven})
	}
}

// failed takes an error of the relay's. Before the registration is accepted it is
// about that.
func (l *clientLink) failed(m *incoming) error {
	e := &RelayError{Reason: Reason(m.text("msg")), ID: m.text("id")}
	switch {
	case !l.accepted && e.ID == "":
		return &refusedError{e}
	case e.ID == "":
		l.last = e
	case l.c.settle(func(k *clientCall) bool { return k.id == e.ID }, func(*clientCall) error { return e }) != nil:
		return nil
	}
	l.c.in.add(e)
	return nil
}

// prove answers a challenge, if it is one that was made for us, by the relay that we
// know or, at first contact, will know from now on (spec json.md, "register"). Else
// we would open boxes for whoever asks.
func (l *clientLink) prove(m *incoming) error {
	if l.accepted {
		return nil // nothing that we have asked for
	}
	secret, err := l.c.challenged(m)
	if err != nil {
		return &refusedError{err}
	}
	l.proven = true
	l.say(encode("proof", "proof", secret))
	return nil
}

// challenged returns the secret of a challenge, in base64.
func (c *Client) challenged(m *incoming) (secret string, err error) {
	relay, err1 := decode(m.text("relay"))
	nonce, err2 := decode(m.text("nonce"))
	box, err3 := decode(m.text("box"))
	epk, err4 := crypto.ParseX25519Key(m.text("epk"))
	if errors.Join(err1, err2, err3, err4) != nil || len(relay) != len(crypto.PublicKey{}) {
		return "", errChallenge
	}
	key := crypto.PublicKey(relay)
	expect, err := handshake.Expect(c.o.Relay, c.o.Trust, c.o.RelayAddress)
	switch {
	case err != nil:
		return "", err
	case expect != nil && *expect != key:
		return "", &handshake.KeyMismatchError{Want: *expect, Got: key}
	}
	plain, err := crypto.OpenBox(c.key, epk, nonce, box)
	begin := append([]byte(proofLabel), relay...)
	if err != nil || len(plain) != len(begin)+proofSecretSize ||
		subtle.ConstantTimeCompare(plain[:len(begin)], begin) != 1 {
		return "", errChallenge
	}
	if expect == nil {
		if err := c.o.Trust.Remember(c.o.RelayAddress, key); err != nil {
			return "", err
		}
	}
	return base64.StdEncoding.EncodeToString(plain[len(begin):]), nil
}

// deliver takes a message that somebody has sent.
func (c *Client) deliver(m *incoming) {
	u := &Unreadable{
		From: m.text("from"), ID: m.text("id"),
		Pub: m.text("pub"), Nonce: m.text("nonce"), CT: m.text("ct"),
	}
	switch {
	case !frame.IsName(u.From, frame.MaxName):
		u.Err = errNotJSON
	case u.Pub != "" && u.CT == "":
		c.announced(u.From, u.Pub)
	default:
		u.Err = c.opened(u)
	}
	if u.Err != nil {
		c.in.add(u)
	}
}

// announced takes the key that somebody tells us, to be told ours.
func (c *Client) announced(from, pub string) {
	key, fresh, err := c.peers.keyOf(from, pub)
	if fresh && err == nil {
		err = c.peers.pin(from, key)
	}
	if fresh || err != nil {
		c.in.add(&PeerKey{Peer: from, Key: key, Err: err})
	}
	if err == nil && from != c.addr && c.peers.answers(from) {
		c.out.offer(c.announcement(from))
	}
}

// opened opens a message with the key that it brings, if that is the one to expect,
// or with the one that is pinned. A key is pinned when it has opened something.
func (c *Client) opened(u *Unreadable) error {
	key, fresh, err := c.peers.keyOf(u.From, u.Pub)
	if err != nil {
		return err
	}
	data, repeat, err := c.peers.open(key, u.Nonce, u.CT)
	switch {
	case err != nil:
		return err
	case repeat:
		return nil
	case fresh:
		c.in.add(&PeerKey{Peer: u.From, Key: key, Err: c.peers.pin(u.From, key)})
	}
	c.in.add(&Message{From: u.From, Key: key, ID: u.ID, Data: data})
	return nil
}
