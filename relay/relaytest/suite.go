package relaytest

import (
	"bytes"
	"context"
	"log/slog"
	"reflect"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
)

// A suite is one case of TestDialect: a server, in a bubble.
type suite struct {
	*testing.T
	c       *DialectConfig
	dialect relay.Dialect // guarded
	server  *relay.Server
	lines   []*line
}

func newSuite(t *testing.T, c *DialectConfig, set func(*relay.Server)) *suite {
	s := &suite{T: t, c: c, dialect: &guard{c.Dialect, t}}
	s.server = &relay.Server{
		Inbox:  inbox.NewMemory(nil),
		Limits: relay.MaxLimits(), // the cases are about the dialect, and are in a hurry
		Logger: slog.New(slog.DiscardHandler),
	}
	s.server.Limits.TakeoverBurst = 1000
	if set != nil {
		set(s.server)
	}
	return s
}

func withoutInbox(s *relay.Server)  { s.Inbox = nil }
func withLateStore(s *relay.Server) { s.Inbox = &lateStore{Store: s.Inbox} }
func withSmallOutbox(s *relay.Server) {
	s.Limits.OutboxMessages = 16
	s.Limits.FlushBytes = 1000
}
func withSmallOutboxOnly(s *relay.Server) {
	withSmallOutbox(s)
	withoutInbox(s)
}
func withSmallOutboxAndLateStore(s *relay.Server) {
	withSmallOutbox(s)
	withLateStore(s)
}

func (s *suite) close() {
	for _, l := range s.lines {
		_ = l.conn.Close(transport.CloseNormal, "")
	}
	_ = s.server.Close()
	s.balance()
	for _, l := range s.lines {
		if l.listening {
			<-l.ended
		}
	}
}

// settle lets everything happen that takes no longer than a second.
func (s *suite) settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

// balance checks that every copy is accounted for.
func (s *suite) balance() {
	s.Helper()
	s.settle()
	st := s.server.Stats()
	if int64(st.Accepted+st.Found) != int64(st.Delivered+st.Expired+st.Dropped)+st.Held {
		s.Errorf("accepted + found ≠ delivered + expired + dropped + held: %+v", st)
	}
}

// ownGoroutines reports goroutines that the dialect has started: those of a
// connection are the server's.
func (s *suite) ownGoroutines() {
	d := reflect.TypeOf(s.c.Dialect)
	if d.Kind() == reflect.Pointer {
		d = d.Elem()
	}
	stacks := strings.Split(string(allStacks()), "\n\n")
	here := bubble.FindString(stacks[0]) // this goroutine comes first
	for _, stack := range stacks {
		if bubble.FindString(stack) == here && strings.Contains(stack, "\ncreated by "+d.PkgPath()+".") {
			s.Errorf("the dialect has a goroutine of its own:\n%s", stack)
		}
	}
}

var bubble = regexp.MustCompile(`synctest bubble \d+`)

func allStacks() []byte {
	for size := 1 << 20; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size {
			return buf[:n]
		}
	}
}

// A line is a client's end of a connection. Nobody reads from it before listen.
type line struct {
	ack       func([]byte) (transport.Kind, []byte) // nil: nothing is acknowledged
	s         *suite
	name      string
	conn      transport.Conn
	listening bool
	ended     chan struct{} // closed when there is nothing more to hear

	mu    sync.Mutex
	heard []string
}

// dial connects, with little room on the way.
func (s *suite) dial() transport.Conn {
	near, far := pipe.Options{Messages: 4}.New()
	s.server.Speak(s.dialect).HandleConn(far)
	_ = near.SetReadDeadline(time.Now().Add(time.Hour)) // the bubble's hour: no hang
	_ = near.SetWriteDeadline(time.Now().Add(time.Hour))
	return near
}

func (s *suite) login(name string) *line {
	s.Helper()
	return s.loginAs(name, s.c.Login, s.c.Ack)
}

func (s *suite) loginAs(name string, login func(transport.Conn, string) error, ack func([]byte) (transport.Kind, []byte)) *line {
	s.Helper()
	l := &line{s: s, name: name, ack: ack, conn: s.dial(), ended: make(chan struct{})}
	s.lines = append(s.lines, l)
	if err := login(tap{l.conn, l}, name); err != nil {
		s.Fatalf("Login as %s: %v", name, err)
	}
	return l
}

// as logs in and listens.
func (s *suite) as(name string) *line {
	s.Helper()
	return s.login(name).listen()
}

// listen begins to hear what comes.
func (l *line) listen() *line {
	l.listening = true
	go func() {
		defer close(l.ended)
		for {
			k, msg, err := l.conn.Read()
			if err != nil {
				return
			}
			if l.hear(k, msg) != nil {
				return
			}
		}
	}()
	return l
}

// hear notes a message, and acknowledges it where that is done.
func (l *line) hear(k transport.Kind, msg []byte) error {
	text, ok := l.s.c.Text(k, msg)
	if !ok {
		return nil
	}
	if !said.MatchString(text) {
		l.s.Errorf("%s heard %q, which nobody said", l.name, text)
	}
	l.mu.Lock()
	l.heard = append(l.heard, text)
	l.mu.Unlock()
	if l.ack == nil {
		return nil
	}
	return l.put(l.ack(bytes.Clone(msg)))
}

// A tap is the Conn for a Login: what comes for the client meanwhile is heard.
type tap struct {
	transport.Conn
	l *line
}

func (t tap) Read() (transport.Kind, []byte, error) {
	k, msg, err := t.Conn.Read()
	if err == nil {
		err = t.l.hear(k, msg)
	}
	return k, msg, err
}

// said is what say says.
var said = regexp.MustCompile(`^[a-z]+ \d+$`)

// texts returns what has been heard.
func (l *line) texts() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.heard...)
}

// put writes one message.
func (l *line) put(k transport.Kind, msg []byte) error {
	for msgs := [][]byte{msg}; len(msgs) > 0; {
		n, err := l.conn.Write(k, msgs)
		if err != nil {
			return err
		}
		msgs = msgs[n:]
	}
	return nil
}

// say sends messages with the numbers from to to-1 to somebody.
func (l *line) say(to string, from, until int) {
	l.s.Helper()
	for i := from; i < until; i++ {
		k, msg := l.s.c.Message(l.name, to, l.name+" "+strconv.Itoa(i))
		if err := l.put(k, msg); err != nil {
			l.s.Fatalf("%s writes: %v", l.name, err)
		}
	}
}

// want checks that the texts of a sender are those with the numbers from to
// until-1, each once and in order; but what is acknowledged may come again.
func (s *suite) want(texts []string, sender string, from, until int) {
	s.Helper()
	next := from
	for _, text := range texts {
		name, number, _ := strings.Cut(text, " ")
		if name != sender {
			continue
		}
		if n, err := strconv.Atoi(number); err == nil && n < next && s.c.Ack != nil {
			continue
		}
		if number != strconv.Itoa(next) {
			s.Errorf("got %q where %q was due, of %d", text, sender+" "+strconv.Itoa(next), until)
			return
		}
		next++
	}
	if next != until {
		s.Errorf("of %s got %d messages, want %d", sender, next-from, until-from)
	}
}

// A lateStore answers a while after it has stored, in order.
type lateStore struct {
	inbox.Store
	mu    sync.Mutex
	late  []func()
	going bool
}

func (s *lateStore) Put(ctx context.Context, e *inbox.Entry, q inbox.Quota, done func(inbox.Result)) {
	s.Store.Put(ctx, e, q, func(r inbox.Result) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.late = append(s.late, func() { done(r) })
		if !s.going {
			s.going = true
			go s.answer()
		}
	})
}

func (s *lateStore) answer() {
	for {
		time.Sleep(time.Millisecond)
		s.mu.Lock()
		if len(s.late) == 0 {
			s.going = false
			s.mu.Unlock()
			return
		}
		late := s.late
		s.late = nil
		s.mu.Unlock()
		for _, f := range late {
			f()
		}
	}
}
