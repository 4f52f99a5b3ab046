package client

import (
	"context"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/crypto"
)

// maxFlying is how many parts, of all files, have no receipt from the relay: letters
// wait behind no more than 2 MiB of them.
const maxFlying = 8

// A control that the relay refuses is sent again for about an hour and a half, if
// no more than maxRefused are: somebody could ask for many and keep the inbox full
// that they go to.
const (
	maxControlTries = 100
	maxRefused      = 256
)

// files has the transfers of a Client, both ways: what comes for those that it
// sends, and a goroutine that receives (filereceive.go). begin, end, take and post
// may be called by any goroutine; the rest is that goroutine's.
type files struct {
	c      *Client
	policy *FilePolicy

	slots    chan struct{}  // a token for each part that is sent and has no receipt
	refused  chan struct{}  // a token for each control that waits to be sent again
	work     chan struct{}  // with room for one: there is something in queue
	verdicts chan verdict   // of the policy
	running  sync.WaitGroup // goroutines, all of which end with the Client

	mu    sync.Mutex
	out   map[transferKey]*outgoing
	queue []func() // for the goroutine that receives
	bytes int      // in it

	// Owned by the goroutine that receives.
	in       map[transferKey]*incoming
	finished ends
}

func newFiles(c *Client, policy *FilePolicy) *files {
	return &files{
		c: c, policy: policy.withDefaults(),
		slots:    make(chan struct{}, maxFlying),
		refused:  make(chan struct{}, maxRefused),
		work:     make(chan struct{}, 1),
		verdicts: make(chan verdict),
		out:      make(map[transferKey]*outgoing),
		in:       make(map[transferKey]*incoming),
	}
}

// begin takes note of a file that is sent, unless it is already.
func (fs *files) begin(k transferKey, o *outgoing) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.out[k] != nil {
		return false
	}
	fs.out[k] = o
	return true
}

func (fs *files) end(k transferKey) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	delete(fs.out, k)
}

// isFile says whether a letter is for files, and not for the application.
func isFile(l *Letter) bool { return l.Type == crypto.FilePart || l.Type == crypto.FileControl }

// take takes a letter for which isFile holds. It is acknowledged when it has done
// what it came for. With an error it is none.
func (fs *files) take(a *arrival) error {
	if a.letter.Type == crypto.FileControl {
		return fs.takeControl(a)
	}
	p, err := crypto.ParseTransferPart(a.letter.Data)
	if err != nil {
		return err
	}
	fs.mu.Lock()
	full := len(fs.queue) > 2*windowLetters || fs.bytes > 3*windowBytes
	fs.mu.Unlock()
	if full { // no relay with a window causes that
		return errNoRoom
	}
	fs.post(len(p.Data), func() { fs.part(a, &p) })
	return nil
}

func (fs *files) takeControl(a *arrival) error {
	ctl, err := crypto.ParseTransferControl(a.letter.Data)
	if err != nil {
		return err
	}
	k := transferKey{a.letter.From, ctl.Transfer}
	fs.mu.Lock()
	o := fs.out[k]
	fs.mu.Unlock()
	if o != nil {
		o.hear(&ctl)
	}
	if ctl.Op == crypto.TransferCancel {
		fs.post(0, func() { fs.cancelled(k) }) // after the parts before it
	}
	a.acknowledge()
	return nil
}

// acknowledge tells the relay that a letter has been taken.
func (a *arrival) acknowledge() { a.session.Ack(&a.frame) }

// post has the goroutine that receives call f, which holds some bytes.
func (fs *files) post(bytes int, f func()) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.bytes += bytes
	fs.queue = append(fs.queue, func() {
		f()
		fs.mu.Lock()
		defer fs.mu.Unlock()
		fs.bytes -= bytes
	})
	signal(fs.work)
}

// next returns what was posted first; nil: nothing.
func (fs *files) next() func() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if len(fs.queue) == 0 {
		return nil
	}
	f := fs.queue[0]
	fs.queue[0] = nil
	fs.queue = fs.queue[1:]
	return f
}

// tell sends a control, as often as it takes the relay to store or hand it over. It
// returns the first attempt, nil if there is none.
func (fs *files) tell(to crypto.PublicKey, ctl crypto.TransferControl) *pending {
	return fs.try(to, ctl, 0)
}

// awaitTold waits for the relay to have what was told, for a second at most.
func (fs *files) awaitTold(p *pending) {
	if p == nil || !fs.c.isOnline() {
		return
	}
	late := time.NewTimer(time.Second)
	defer late.Stop()
	select {
	case <-p.settled:
	case <-late.C:
	case <-fs.c.life.Done():
	}
}

func (fs *files) try(to crypto.PublicKey, ctl crypto.TransferControl, tries int) *pending {
	life := fs.c.life
	preparing, stop := context.WithTimeout(life, 2*patience) // for a card
	defer stop()
	p, err := fs.c.preparePiece(preparing, to, ctl.Content())
	if err == nil {
		err = fs.c.enqueue(life, p)
	}
	if err != nil {
		fs.c.cfg.Logger.Debug("client: a file transfer's control was not sent", "to", to, "err", err)
		return nil
	}
	fs.running.Go(func() {
		if _, err := fs.c.await(life, p); !isPassing(err) || tries == maxControlTries {
			return
		}
		select {
		case fs.refused <- struct{}{}:
			defer func() { <-fs.refused }()
		default:
			return
		}
		select {
		case <-time.After(backoffOf(tries)):
			fs.post(0, func() { fs.again(to, ctl, tries+1) })
		case <-life.Done():
		}
	})
	return p
}

// again sends a control that was refused, unless it is out of date.
func (fs *files) again(to crypto.PublicKey, ctl crypto.TransferControl, tries int) {
	t := fs.in[transferKey{to, ctl.Transfer}]
	if ctl.Op == crypto.TransferHave && t != nil && t.next != int64(ctl.Have)+1 {
		return
	}
	fs.try(to, ctl, tries)
}

// preparePiece prepares what files are made of.
func (c *Client) preparePiece(ctx context.Context, to crypto.PublicKey, content crypto.Content) (*pending, error) {
	p, err := c.prepare(ctx, to, Content{Content: content}, sendOptions{})
	if err == nil {
		p.piece = true
	}
	return p, err
}

// run receives until the Client ends.
func (fs *files) run(ctx context.Context) {
	ticker := time.NewTicker(max(fs.policy.Idle/4, time.Second))
	defer ticker.Stop()
	for {
		select {
		case <-fs.work:
			for f := fs.next(); f != nil && ctx.Err() == nil; f = fs.next() {
				f()
			}
		case v := <-fs.verdicts:
			fs.answered(v)
		case <-ticker.C:
			fs.expire()
		case <-ctx.Done():
			fs.close()
			return
		}
		fs.report()
	}
}
