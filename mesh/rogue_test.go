package mesh

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/transport"
)

// A rogue is the far end of a link, in the hands of a test.
type rogue struct {
	t    testing.TB
	id   *crypto.Identity
	conn transport.Conn
	in   chan frame.Brep
	gone chan struct{}
	end  error
	mute atomic.Bool // answers no PING by itself

	writing sync.Mutex
}

// rogue links a relay that is none with n.
func (n *node) rogue(id *crypto.Identity) *rogue {
	n.w.t.Helper()
	return n.rogueWith(id, handshake.FeatureDurable)
}

func (n *node) rogueWith(id *crypto.Identity, features uint32) *rogue {
	n.w.t.Helper()
	conn, err := n.net.Dial(context.Background())
	require.NoError(n.w.t, err)
	r := &rogue{t: n.w.t, id: id, conn: conn, in: make(chan frame.Brep, 10_000), gone: make(chan struct{})}
	d, err := handshake.NewDialler(&handshake.DiallerConfig{Identity: id, Features: features})
	require.NoError(n.w.t, err)
	r.write(d.Challenge())
	for done := false; !done; _, done = d.Relay() {
		_, msg, err := conn.Read()
		require.NoError(n.w.t, err)
		f, err := frame.DecodeBrep(msg)
		require.NoError(n.w.t, err)
		answer, err := d.Receive(&f)
		require.NoError(n.w.t, err)
		if answer != nil {
			r.write(answer)
		}
	}
	go r.read()
	n.w.t.Cleanup(func() { _ = conn.Close(0, ""); <-r.gone })
	return r
}

func (r *rogue) read() {
	defer close(r.gone)
	for {
		_, msg, err := r.conn.Read()
		if err != nil {
			r.end = err
			return
		}
		f, err := frame.DecodeBrep(bytes.Clone(msg))
		switch {
		case err != nil:
		case f.Type == frame.TypePing && !r.mute.Load():
			r.say(frame.TypePong, f.Payload)
		default:
			select {
			case r.in <- f:
			default: // nobody looks
			}
		}
	}
}

func (r *rogue) write(f *frame.Brep) {
	r.writing.Lock()
	defer r.writing.Unlock()
	_, _ = r.conn.Write(transport.Binary, [][]byte{f.Append(nil)})
}

// say sends a frame of the rogue's own.
func (r *rogue) say(t frame.Type, payload []byte) {
	r.write(&frame.Brep{Type: t, Sender: r.id.Public(), Payload: payload})
}

// data sends a message of somebody's.
func (r *rogue) data(from, to *crypto.Identity, text string) {
	key := to.Public()
	r.write(&frame.Brep{Type: frame.TypeData, ID: textID(text), Sender: from.Public(), Flags: frame.FlagReceipt | 1<<4, Payload: append(key[:], text...)})
}

// gets waits for a frame of a type, and drops others.
func (r *rogue) gets(t frame.Type) frame.Brep {
	r.t.Helper()
	late := time.After(10 * time.Minute)
	for {
		select {
		case f := <-r.in:
			if f.Type == t {
				return f
			}
		case <-late:
			require.FailNow(r.t, "nothing comes", "%#x", t)
		}
	}
}

// silent says that no frame of a type comes within a time.
func (r *rogue) silent(t frame.Type, within time.Duration) {
	r.t.Helper()
	time.Sleep(within)
	synctest.Wait()
	for {
		select {
		case f := <-r.in:
			require.NotEqual(r.t, t, f.Type, "%q", f.Payload)
		default:
			return
		}
	}
}

// here says that a client is at the rogue.
func (r *rogue) here(id *crypto.Identity) {
	h := frame.Here{Attachment: crypto.Attach(id, r.id.Public(), time.Now().Add(time.Hour))}
	r.say(frame.TypeHere, h.Append(nil))
	synctest.Wait()
}

// receipt answers a message.
func (r *rogue) receipt(f *frame.Brep, status frame.ReceiptStatus, code frame.Code) {
	lr := frame.LinkReceipt{Sender: f.Sender, Receipt: frame.Receipt{ID: f.ID, Status: status, Code: code}}
	r.say(frame.TypeReceipt, lr.Append(nil))
}

func (r *rogue) isGone() bool {
	synctest.Wait()
	select {
	case <-r.gone:
		return true
	default:
		return false
	}
}
