package client

import (
	"context"
	"errors"
	"time"

	"github.com/sotto-relay/sotto/crypto"
)

// Errors that end the transfer of a file, besides those of reading, of the disk,
// of contexts and of [Client.Send].
var (
	// ErrFileRefused means that the recipient does not want the file: nothing but its
	// first part was sent.
	ErrFileRefused = errors.New("client: the file was refused")

	// ErrFileCancelled means that the other side has ended the transfer.
	ErrFileCancelled = errors.New("client: the transfer was cancelled by the other side")

	// ErrFileStalled means that the transfer has made no progress for too long.
	ErrFileStalled = errors.New("client: the transfer makes no progress")

	// ErrFileDamaged means that what came is not what was announced: other bytes,
	// another size, or parts that make no file.
	ErrFileDamaged = errors.New("client: the file is not what was announced")

	// ErrFileContact means that the recipient is one of Config.Contacts, who know no
	// large files: send a [File].
	ErrFileContact = errors.New("client: this contact cannot receive large files")

	// ErrFileContent means that a FileSource has no Content.
	ErrFileContent = errors.New("client: a file without a content to read")

	// ErrFileRoom means that a file was refused, without asking Accept, since there were
	// as many as a FilePolicy allows.
	ErrFileRoom = errors.New("client: there are too many files already")

	// ErrFileTransfer means that this transfer to this recipient is under way.
	ErrFileTransfer = errors.New("client: a transfer with this id is under way")
)

// A FilePolicy says which files a Client takes. What others offer without being
// asked costs nothing but memory for its first part until Accept has agreed.
// Zero fields mean what is said there.
type FilePolicy struct {
	// Accept returns the directory for a file, or the reason why it is refused; the
	// sender learns only that it is. It may take its time, and ask somebody: each
	// call has a goroutine of its own, and Client.Close waits for it. ctx ends with
	// the offer. See SaveTo. Required.
	//
	// The directory holds a hidden file that grows, and then, if the size and the
	// SHA-256 are as announced, the file under its name, or the like of it that is
	// not taken: no file is overwritten.
	Accept func(ctx context.Context, offer FileOffer) (dir string, err error)

	// Event is called for each step of each file. It is called by the goroutine
	// that writes files, so it returns soon, and neither waits for anything that a
	// file takes nor calls Close. Nil: nobody watches.
	Event func(FileEvent)

	// Transfers and PerSender bound the files that are offered or come in at a time
	// (16 and 4). What is beyond is refused, and the Event has ErrFileRoom. A place is
	// taken while Accept has not returned, and then until the file is whole or has made
	// no progress for Idle. So a few strangers can take all of them, where Accept agrees
	// to strangers' files, or waits with them, and there is no Known.
	Transfers, PerSender int

	// Known says whose files find room however many strangers come: the files of all
	// others have half of Transfers at most. It is called for each offer, by the goroutine
	// that writes files, so it returns soon. Nil: all are alike.
	Known func(crypto.PublicKey) bool

	// Idle is for how long a transfer may make no progress before it is ended and
	// its hidden file removed (24 h).
	Idle time.Duration
}

// A FileOffer is a file that somebody wants to send us. All of it is the sender's
// word.
type FileOffer struct {
	From     crypto.PublicKey
	Transfer [16]byte // of the sender's choice
	Name     string   // safe to join to a directory, see crypto.SafeFileName
	Size     int64    // in bytes

	// Underway is how many bytes other files, accepted or still to be, have left to
	// write.
	Underway int64
}

// A FileEvent is a step of a file that comes in. The last has a Path or an Err.
type FileEvent struct {
	FileOffer
	Done int64  // bytes that are written
	Path string // of the file, which is whole and verified
	Err  error  // why there will be none; Accept's error among others
}

func (p *FilePolicy) withDefaults() *FilePolicy {
	var full FilePolicy
	if p != nil {
		full = *p
	}
	if full.Accept == nil {
		full.Accept = func(context.Context, FileOffer) (string, error) { return "", ErrFileRefused }
	}
	if full.Event == nil {
		full.Event = func(FileEvent) {}
	}
	orDefault(&full.Transfers, 16)
	orDefault(&full.PerSender, 4)
	orDefault(&full.Idle, 24*time.Hour)
	return &full
}

// A transferKey names a transfer: only the other side of it can say anything about
// it.
type transferKey struct {
	peer crypto.PublicKey
	id   [16]byte
}

// The layout of a file. It follows from the header and the first part: all between
// the first and the last are full. So a part has one right length, and the length
// of a file that is not whole tells which parts are in it.
type layout struct {
	size  int64
	first int64 // bytes in part 0
}

// parts is how many there are.
func (l layout) parts() int64 {
	return 1 + (l.size-l.first+crypto.MaxPartSize-1)/crypto.MaxPartSize
}

// offset is where a part begins, or would.
func (l layout) offset(index int64) int64 {
	if index == 0 {
		return 0
	}
	return min(l.first+(index-1)*crypto.MaxPartSize, l.size)
}

// length is that of a part; zero beyond the last.
func (l layout) length(index int64) int { return int(l.offset(index+1) - l.offset(index)) }

// whole is how many parts there are in a file of n bytes.
func (l layout) whole(n int64) int64 {
	switch {
	case n < l.first || n > l.size:
		return 0
	case n == l.size:
		return l.parts()
	}
	return 1 + (n-l.first)/crypto.MaxPartSize
}

// fileWindow is how many parts are sent beyond those that the receiver has (spec
// native.md, "Content types").
const fileWindow = 16
