package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
)

// A hand sends parts as a test says, and notes what the receiver answers.
type hand struct {
	*Client
	t  *testing.T
	to crypto.PublicKey
	id [16]byte
	*outgoing
}

func (r *rig) hand(t *testing.T, from *crypto.Identity, to crypto.PublicKey) *hand {
	undecided := &FilePolicy{Idle: rememberTime, Accept: func(ctx context.Context, _ FileOffer) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}}
	h := &hand{Client: r.client(from, func(c *Config) { c.Files = undecided }), t: t, to: to, id: [16]byte{9}}
	h.begin()
	return h
}

// begin forgets what was answered.
func (h *hand) begin() {
	h.outgoing = &outgoing{have: -1, most: -1, changed: make(chan struct{}, 1)}
	k := transferKey{h.to, h.id}
	h.files.end(k)
	require.True(h.t, h.files.begin(k, h.outgoing))
}

// part sends a part, and waits until it has been dealt with.
func (h *hand) part(p crypto.TransferPart) {
	p.Transfer = h.id
	c, err := p.Content()
	require.NoError(h.t, err)
	_, err = h.Send(h.t.Context(), h.to, Content{Content: c})
	require.NoError(h.t, err)
	synctest.Wait()
}

func (h *hand) control(c crypto.TransferControl) {
	c.Transfer = h.id
	_, err := h.Send(h.t.Context(), h.to, Content{Content: c.Content()})
	require.NoError(h.t, err)
	synctest.Wait()
}

// parts returns a file in parts.
func parts(name string, data []byte) []crypto.TransferPart {
	l := layout{int64(len(data)), min(int64(len(data)), firstPart)}
	var all []crypto.TransferPart
	for i := range l.parts() {
		all = append(all, crypto.TransferPart{
			Index: uint32(i), Last: i == l.parts()-1, Data: data[l.offset(i):][:l.length(i)],
		})
	}
	all[0].Header = &crypto.TransferHeader{Name: name, Size: l.size, SHA256: sha256.Sum256(data)}
	return all
}

// TestFileLies: parts that are not what was announced make no file and leave
// nothing behind, and the receiver says so at once.
func TestFileLies(t *testing.T) {
	skipInRace(t)
	data := content(3 * part)
	edit := func(change func(p []crypto.TransferPart)) []crypto.TransferPart {
		p := parts("a", data)
		change(p)
		return p
	}
	other := *parts("b", data)[0].Header
	for name, p := range map[string][]crypto.TransferPart{
		"other bytes":          edit(func(p []crypto.TransferPart) { p[1].Data = bytes.Repeat([]byte{1}, part) }),
		"other sum":            edit(func(p []crypto.TransferPart) { p[0].Header.SHA256[0]++ }),
		"longer than its name": edit(func(p []crypto.TransferPart) { p[0].Header.Size-- }),
		"shorter":              edit(func(p []crypto.TransferPart) { p[0].Header.Size++ }),
		"more than the size":   edit(func(p []crypto.TransferPart) { p[0].Header.Size = 3 }),
		"ends early":           edit(func(p []crypto.TransferPart) { p[1].Last = true }),
		"does not end":         edit(func(p []crypto.TransferPart) { p[3].Last = false }),
		"all in the first":     edit(func(p []crypto.TransferPart) { p[0].Last = true }),
		"short part":           edit(func(p []crypto.TransferPart) { p[2].Data = p[2].Data[1:] }),
		"empty part":           edit(func(p []crypto.TransferPart) { p[1].Data = nil }),
		"beyond the end":       edit(func(p []crypto.TransferPart) { p[2].Index = 9 }),
		"far beyond":           edit(func(p []crypto.TransferPart) { p[2].Index = 1<<32 - 1 }),
		"two offers":           edit(func(p []crypto.TransferPart) { p[2] = p[0]; p[2].Header = &other }),
		"two beginnings":       edit(func(p []crypto.TransferPart) { p[2] = p[0]; p[2].Data = p[2].Data[1:] }),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				bob := identity(t, 2)
				b := r.receiver(bob, nil)
				h := r.hand(t, identity(t, 1), bob.Public())
				for _, p := range p {
					h.part(p)
				}
				require.True(t, h.cancelled)
				require.Empty(t, b.saved())
				require.Empty(t, b.files.in)
				if e, n := b.last(); n > 0 {
					require.Equal(t, ErrFileDamaged, e.Err)
				}
				h.id[1]++ // the next is welcome
				h.begin()
				for _, p := range parts("a", data) {
					h.part(p)
				}
				b.has("a", data)
			})
		})
	}
}

// TestFileOrder: parts that come twice, too early or of several files in turn make
// whole files; the sender is told once what to send again.
func TestFileOrder(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		b := r.receiver(bob, nil)
		alice, eve := r.hand(t, identity(t, 1), bob.Public()), r.hand(t, identity(t, 3), bob.Public())
		data, other := content(6*part), content(6*part+1)
		p, q := parts("a", data), parts("a", other) // of the same name and id
		for _, i := range []int{0, 1, 1, 2, 1} {
			alice.part(p[i])
			eve.part(q[i])
		}
		require.EqualValues(t, 2, alice.have)
		require.False(t, alice.back, "copies are no reason to go back")
		alice.part(p[0])
		require.Equal(t, 1, alice.returns, "it asks how far it has come")
		require.EqualValues(t, 2, alice.have)
		alice.returns, alice.back = 0, false
		alice.part(p[4])
		require.True(t, alice.back)
		require.EqualValues(t, 2, alice.have)
		require.Equal(t, 1, alice.returns)
		alice.part(p[5])
		alice.part(p[6])
		require.Equal(t, 1, alice.returns, "it knows")
		for i := 3; i < len(p); i++ {
			eve.part(q[i])
			alice.part(p[i])
		}
		require.EqualValues(t, len(p)-1, alice.have)
		one, err := os.ReadFile(filepath.Join(b.dir, "a"))
		require.NoError(t, err)
		require.True(t, bytes.Equal(other, one))
		b.has("a (2)", data)

		// What comes after the end is answered, and changes nothing.
		alice.begin()
		alice.part(p[0])
		require.EqualValues(t, len(p)-1, alice.have)
		alice.begin()
		alice.part(p[3])
		require.EqualValues(t, len(p)-1, alice.have)
		alice.control(crypto.TransferControl{Op: crypto.TransferCancel})
		require.Len(t, b.saved(), 2)

		// A part of nothing: begin again, once.
		alice.id[5]++
		alice.begin()
		alice.part(p[3])
		require.True(t, alice.accepted)
		alice.part(p[4])
		require.Zero(t, alice.returns)
		require.Len(t, b.saved(), 2)
		require.Zero(t, b.Stats().Dropped)
	})
}

// TestFilePieces: what is no sealed and kept piece of a file is dropped, and
// acknowledged, so that it does not come again.
func TestFilePieces(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		b := r.receiver(bob, nil)
		a := r.client(identity(t, 1), nil)
		good, err := parts("a", nil)[0].Content()
		require.NoError(t, err)
		synctest.Wait() // until the relay has found that nothing waits for Bob
		try := func(want error, c crypto.Content, o ...SendOption) {
			t.Helper()
			var got error
			b.cfg.Trace.Dropped = func(_ crypto.PublicKey, why error) { got = why }
			_, err := a.Send(t.Context(), bob.Public(), Content{Content: c}, o...)
			require.NoError(t, err)
			synctest.Wait()
			require.ErrorIs(t, got, want)
		}
		try(errUnkept, good, Ephemeral())
		try(crypto.ErrMalformed, crypto.Content{Type: crypto.FilePart, Data: good.Data[:20]})
		try(crypto.ErrMalformed, crypto.Content{Type: crypto.FileControl, Data: good.Data[:17]})
		try(errContentType, crypto.Content{Type: 200})
		require.Empty(t, b.saved())
		require.NoError(t, b.Close())
		none(t, r.client(bob, nil))
	})
}
