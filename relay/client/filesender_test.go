package client

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay"
)

// TestFileSender: a sender goes back when it is told to, but not for ever, and is
// not led astray by nonsense.
func TestFileSender(t *testing.T) {
	skipInRace(t)
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		b := r.client(bob, nil)
		require.NoError(t, b.Close()) // a hand is in its place
		a := r.client(identity(t, 1), nil)
		h := r.hand(t, bob, a.cfg.Identity.Public())
		data := content(40 * part)
		p := &probe{ReaderAt: bytes.NewReader(data)}
		f := FileSource{Name: "a", Size: int64(len(data)), Content: p, Transfer: h.id}
		end := layout{f.Size, firstPart}.offset

		send := func() (wait func() error) {
			wait = background(t.Context(), a, bob.Public(), f)
			synctest.Wait()
			require.EqualValues(t, firstPart, p.latest())
			return wait
		}
		wait := send()
		h.control(crypto.TransferControl{Op: crypto.TransferAccept})
		require.Equal(t, end(16), p.latest(), "a window from nothing")
		h.control(crypto.TransferControl{Op: crypto.TransferHave, Have: 10})
		require.Equal(t, end(27), p.latest())
		h.control(crypto.TransferControl{Op: crypto.TransferHave, Have: 4})
		require.Equal(t, end(21), p.latest())
		h.control(crypto.TransferControl{Op: crypto.TransferAccept})
		require.EqualValues(t, firstPart, p.latest(), "the offer again, and no more")
		h.control(crypto.TransferControl{Op: crypto.TransferHave, Have: 30})
		require.Equal(t, end(41), p.latest())
		h.control(crypto.TransferControl{Op: crypto.TransferHave, Have: 1 << 31})
		require.NoError(t, wait(), "it says that it has all")

		for _, say := range []crypto.TransferControl{{Op: crypto.TransferAccept}, {Op: crypto.TransferHave, Have: 3}} {
			wait = send()
			for range 2 + maxReturns + maxReturns {
				h.control(say)
			}
			require.Equal(t, ErrFileStalled, wait())
		}

		wait = send()
		h.control(crypto.TransferControl{Op: crypto.TransferAccept})
		time.Sleep(6 * 24 * time.Hour)
		h.control(crypto.TransferControl{Op: crypto.TransferHave, Have: 10})
		time.Sleep(6 * 24 * time.Hour)
		before := time.Now()
		require.Equal(t, ErrFileStalled, wait())
		require.InDelta(t, 24*time.Hour, time.Since(before), float64(time.Minute))
	})
}

// TestFileReminder: a receiver that says no more, as one that was killed before what
// it said was sent, gets the offer again; one that is away, once.
func TestFileReminder(t *testing.T) {
	skipInRace(t)
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		a := r.client(identity(t, 1), nil)
		h := r.hand(t, bob, a.cfg.Identity.Public())
		data := content(40 * part)
		p := &probe{ReaderAt: bytes.NewReader(data)}
		wait := background(t.Context(), a, bob.Public(), FileSource{Name: "a", Size: int64(len(data)), Content: p, Transfer: h.id})
		synctest.Wait()
		h.control(crypto.TransferControl{Op: crypto.TransferHave, Have: 3})
		window := layout{int64(len(data)), firstPart}.offset(20)
		require.Equal(t, window, p.latest())
		time.Sleep(firstReminder - time.Second)
		require.Equal(t, window, p.latest())
		time.Sleep(time.Minute)
		require.EqualValues(t, firstPart, p.latest(), "the offer")
		sent := len(a.Pending())
		time.Sleep(24 * time.Hour)
		require.LessOrEqual(t, len(a.Pending()), sent)
		h.control(crypto.TransferControl{Op: crypto.TransferHave, Have: 3})
		require.Equal(t, window, p.latest(), "once more what followed")
		require.Zero(t, a.files.out[transferKey{bob.Public(), h.id}].returns)
		h.control(crypto.TransferControl{Op: crypto.TransferHave, Have: 100})
		require.NoError(t, wait())
	})
}

// TestFileChanged: a file that changes while it is sent, or cannot be read, ends the
// transfer on both sides.
func TestFileChanged(t *testing.T) {
	broken := errors.New("broken disk")
	for name, at := range map[string]func(n int, b []byte) (int, error){
		"changed": func(_ int, b []byte) (int, error) { b[0]++; return len(b), nil },
		"broken":  func(int, []byte) (int, error) { return 0, broken },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				bob := identity(t, 2)
				a, b := r.client(identity(t, 1), nil), r.receiver(bob, nil)
				data := content(9 * part)
				err := a.SendFile(t.Context(), bob.Public(), FileSource{
					Name: "a", Size: int64(len(data)), Content: &secondTime{ReaderAt: bytes.NewReader(data), at: at},
				})
				synctest.Wait()
				e, _ := b.last()
				if name == "changed" {
					require.Equal(t, ErrFileCancelled, err)
					require.Equal(t, ErrFileDamaged, e.Err)
				} else {
					require.ErrorIs(t, err, broken)
					require.Equal(t, ErrFileCancelled, e.Err)
				}
				require.Empty(t, b.saved())
			})
		})
	}
}

// A secondTime reads by itself what is read for the second time.
type secondTime struct {
	*bytes.Reader
	ReaderAt *bytes.Reader
	at       func(n int, b []byte) (int, error)
	read     int64
}

func (s *secondTime) ReadAt(b []byte, off int64) (int, error) {
	n, err := s.ReaderAt.ReadAt(b, off)
	if s.read < s.ReaderAt.Size() {
		s.read += int64(n)
		return n, err
	}
	if off < 4*part {
		return n, err
	}
	return s.at(n, b)
}

// TestFileLegacyRelay: a relay that carries nothing sealed carries no large files.
func TestFileLegacyRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRelay{t: t, seed: relaySeed, legacy: true, script: (*fakeConn).hold}
		c, err := r.client(nil)
		require.NoError(t, err)
		require.Equal(t, ErrLegacySession, c.SendFile(t.Context(), identity(t, 2).Public(), source("a", content(part))))
	})
}

// TestFileRelayFull: a sender waits for room at the relay, and sends what was refused.
func TestFileRelayFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.limits.Dialects = map[string]relay.DialectLimits{"brep": {InboxMessages: 3}}
		r.start()
		alice, bob := identity(t, 1), identity(t, 2)
		a, b := r.client(alice, nil), r.receiver(bob, nil)
		data := content(30 * part)
		going := make(chan struct{})
		var once sync.Once
		f := source("a", data)
		f.Progress = func(done int64) {
			if done > 5*part {
				once.Do(func() { close(going) })
			}
		}
		wait := background(t.Context(), a, bob.Public(), f)
		<-going
		require.NoError(t, b.Close())
		time.Sleep(5 * time.Minute)
		b.start()
		require.NoError(t, wait())
		b.has("a", data)
	})
}
