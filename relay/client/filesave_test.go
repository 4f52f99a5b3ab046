package client

import (
	"context"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
)

// TestFileDisk: what goes wrong with the disk ends the transfer, and others go on.
func TestFileDisk(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		b := r.receiver(bob, func(b *receiver) {
			save := b.policy.Accept
			b.policy.Accept = func(ctx context.Context, o FileOffer) (string, error) {
				if strings.HasPrefix(o.Name, "nowhere") {
					return filepath.Join(b.dir, "no", "such"), nil
				}
				return save(ctx, o)
			}
		})
		h := r.hand(t, identity(t, 1), bob.Public())
		p := parts("a", content(3*part))
		next := func() {
			h.id[3]++
			h.begin()
		}
		h.part(parts("nowhere", nil)[0])
		require.True(t, h.cancelled)
		e, _ := b.last()
		require.ErrorIs(t, e.Err, os.ErrNotExist)

		next()
		h.part(p[0])
		require.True(t, h.accepted)
		require.NoError(t, b.files.in[transferKey{h.cfg.Identity.Public(), h.id}].file.file.Close())
		h.part(p[1])
		require.True(t, h.cancelled)
		e, _ = b.last()
		require.ErrorIs(t, e.Err, os.ErrClosed)
		require.Empty(t, b.saved())

		next()
		name := filepath.Join(b.dir, partialName(transferKey{h.cfg.Identity.Public(), h.id}))
		require.NoError(t, os.Symlink("/dev/null", name))
		h.part(p[0])
		require.True(t, h.cancelled)
		e, _ = b.last()
		require.ErrorContains(t, e.Err, "no regular file")
	})
}

// TestSaveTo: who may send how much.
func TestSaveTo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "files")
	alice, eve := identity(t, 1).Public(), identity(t, 3).Public()
	accept := SaveTo(dir, SaveLimits{Size: 100, Total: 250, From: func(k crypto.PublicKey) bool { return k == alice }})
	offer := func(from crypto.PublicKey, size, underway int64) error {
		got, err := accept(t.Context(), FileOffer{From: from, Size: size, Underway: underway})
		if err == nil {
			require.Equal(t, dir, got)
		}
		return err
	}
	require.Equal(t, ErrFileRefused, offer(eve, 1, 0))
	require.Equal(t, ErrFileLimit, offer(alice, 101, 0))
	require.NoDirExists(t, dir)
	require.NoError(t, offer(alice, 100, 150))
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700)|os.ModeDir, info.Mode())
	require.Equal(t, ErrFileLimit, offer(alice, 100, 151))
	require.Equal(t, ErrFileLimit, offer(alice, 100, 1<<62))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "there"), make([]byte, 200), 0o600))
	require.NoError(t, offer(alice, 50, 0))
	require.Equal(t, ErrFileLimit, offer(alice, 51, 0))
	require.NoError(t, os.WriteFile(filepath.Join(dir, partialName(transferKey{peer: alice})), make([]byte, 50), 0o600))
	require.NoError(t, offer(alice, 50, 0), "its own beginning does not count")

	few := SaveTo(dir, SaveLimits{Files: 3})
	_, err = few(t.Context(), FileOffer{From: eve})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600))
	_, err = few(t.Context(), FileOffer{From: eve})
	require.Equal(t, ErrFileLimit, err)

	everybody := SaveTo(dir, SaveLimits{})
	_, err = everybody(t.Context(), FileOffer{From: eve, Size: 1 << 30})
	require.NoError(t, err)
	_, err = everybody(t.Context(), FileOffer{From: eve, Size: 1<<30 + 1})
	require.Equal(t, ErrFileLimit, err)
}

// TestPartialNames: which names files get, and what becomes of hidden ones.
func TestPartialNames(t *testing.T) {
	dir := t.TempDir()
	sum := sha256.Sum256(nil)
	k := func(n byte) transferKey { return transferKey{id: [16]byte{n}} }
	open := func(n byte) *partial {
		p, err := openPartial(t.Context(), dir, k(n), layout{})
		require.NoError(t, err)
		return p
	}
	for name, want := range map[string]string{
		"a.tar.gz": "a.tar.gz", ".hidden": "_.hidden", "-rf": "_-rf",
		strings.Repeat("é", 127) + "x": strings.Repeat("é", 127) + "x",
	} {
		got, err := open(1).finish(name, sum)
		require.NoError(t, err)
		require.Equal(t, filepath.Join(dir, want), got)
		got, err = open(1).finish(name, sum)
		require.NoError(t, err)
		require.NotEqual(t, filepath.Join(dir, want), got)
		require.LessOrEqual(t, len(filepath.Base(got)), 255)
	}
	require.FileExists(t, filepath.Join(dir, "a.tar (2).gz"))

	// After a crash between the two names of a file, it has the one.
	p := open(2)
	require.NoError(t, os.Link(filepath.Join(dir, p.name), filepath.Join(dir, "twice")))
	got, err := p.finish("twice", sum)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "twice"), got)

	// Hidden files that nothing will come for are removed, others are not.
	for n := byte(3); n < 6; n++ {
		open(n).close()
	}
	old := time.Now().Add(-15 * 24 * time.Hour)
	for _, name := range []string{partialName(k(3)), partialName(k(4)), "twice"} {
		require.NoError(t, os.Chtimes(filepath.Join(dir, name), old, old))
	}
	open(4).close()
	require.NoFileExists(t, filepath.Join(dir, partialName(k(3))))
	require.FileExists(t, filepath.Join(dir, partialName(k(4))))
	require.FileExists(t, filepath.Join(dir, partialName(k(5))))
	require.FileExists(t, filepath.Join(dir, "twice"))
}

// TestLayout: the sums of parts.
func TestLayout(t *testing.T) {
	for _, size := range []int64{0, 1, part, 2*part + 1, 10 * part, crypto.MaxTransferSize} {
		for _, first := range []int64{0, 1, firstPart, part} {
			if first > size {
				continue
			}
			l := layout{size, first}
			n := l.parts()
			require.Equal(t, size, l.offset(n), "%+v", l)
			require.Zero(t, l.length(n))
			require.LessOrEqual(t, n-1, int64(1<<32-1))
			require.Equal(t, n, l.whole(size))
			require.Zero(t, l.whole(size+1))
			for _, i := range []int64{1, 2, n - 1} {
				if i < 1 || i >= n {
					continue
				}
				require.Positive(t, l.length(i))
				require.Equal(t, l.offset(i+1), l.offset(i)+int64(l.length(i)))
				require.Equal(t, i, l.whole(l.offset(i)))
				if l.offset(i) > l.first {
					require.Equal(t, i-1, l.whole(l.offset(i)-1))
				}
			}
		}
	}
}
