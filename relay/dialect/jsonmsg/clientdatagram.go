package jsonmsg

import (
	"crypto/rand"
	"sync"
	"time"
)

// A clientSession is what a client of datagrams knows of its session, and when it is
// to send what shows that it is there: the registration until there is a token, and
// then, for each new token and now and then, a message that changes nothing. It
// unsubscribes from a topic of which nobody else knows.
type clientSession struct {
	mu       sync.Mutex
	register []byte
	topic    string
	token    string // the newest; empty: not registered
	waiting  bool   // for an answer
	due      time.Time
	pause    time.Duration
	sent     int // since there was an answer
}

const (
	signTick    = time.Second
	signPause   = 8 * time.Second // at most, between two without an answer
	signsAtMost = 5
)

// begin notes that the registration is sent.
func (s *clientSession) begin(register []byte) {
	s.register, s.topic = register, rand.Text()
	s.ask(time.Now())
}

// ask notes that something is sent that wants an answer. mu is held, or needs not.
func (s *clientSession) ask(now time.Time) {
	s.waiting, s.sent, s.pause, s.due = true, 1, signTick, now.Add(signTick)
}

// newest returns the token.
func (s *clientSession) newest() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.token
}

// renewed takes a token, and returns what brings it back to the relay.
func (s *clientSession) renewed(token string) (sign []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
	s.ask(time.Now())
	return s.sign()
}

func (s *clientSession) sign() []byte { return encode("unsubscribe", "topic", s.topic) }

// answered says whether the relay has answered a sign of life.
func (s *clientSession) answered(topic string, keepalive time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if topic != s.topic {
		return false
	}
	s.waiting, s.due = false, time.Now().Add(keepalive)
	return true
}

// tick returns what to send now, if anything, and whether it is a registration.
func (s *clientSession) tick(now time.Time) (msg []byte, register bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	register = s.token == ""
	switch {
	case now.Before(s.due):
		return nil, register, nil
	case !s.waiting:
		s.ask(now)
	case s.sent == signsAtMost && !register: // registering has a time limit of its own
		return nil, register, errSilent
	default:
		s.sent++
		s.pause = min(2*s.pause, signPause)
		s.due = now.Add(s.pause)
	}
	if register {
		return s.register, register, nil
	}
	return s.sign(), register, nil
}

// keep keeps a session of datagrams.
func (l *clientLink) keep() {
	t := time.NewTicker(signTick)
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			msg, register, err := l.session.tick(now)
			if msg != nil && !register {
				msg = l.dress(msg)
			}
			if err != nil {
				l.end(err)
				return
			}
			if msg != nil {
				l.say(msg)
			}
			l.c.askAgain(now)
		case <-l.ctx.Done():
			return
		}
	}
}
