package client

import (
	"context"
	"time"

	"github.com/sotto-relay/sotto/crypto"
)

// An incoming is a file that is offered or comes in. The goroutine of files owns
// it.
//
// It does not outlive the program, but its hidden file does: for a part of an
// unknown transfer the sender is asked to begin with the offer again, and goes on
// with what is not in that file.
type incoming struct {
	key    transferKey
	header crypto.TransferHeader
	layout layout
	data   []byte             // of part 0, until the policy has answered
	offer  *arrival           // part 0, unacknowledged until then; the latest that came
	stop   context.CancelFunc // ends the policy's time

	file    *partial  // nil: the policy has not answered
	next    int64     // index of the part that is written next
	due     bool      // the sender is to be told what has come
	missed  bool      // and then again, so that it goes back there
	lost    int64     // what was next when it was last found missing
	touched time.Time // the latest progress
}

// A verdict is what became of an offer: a file, or an error.
type verdict struct {
	t    *incoming
	file *partial
	err  error
}

// part takes a part.
func (fs *files) part(a *arrival, p *crypto.TransferPart) {
	k := transferKey{a.letter.From, p.Transfer}
	t := fs.in[k]
	switch {
	case t == nil && p.Header == nil:
		fs.stray(k, a)
	case t == nil:
		fs.offered(k, a, p)
	case p.Header != nil:
		fs.offeredAgain(t, a, p)
	case t.file == nil: // it was sent before the program was started again
		a.acknowledge()
	default:
		fs.follow(t, a, p)
	}
}

// stray answers a part without an offer.
func (fs *files) stray(k transferKey, a *arrival) {
	defer a.acknowledge()
	switch end, known := fs.finished.get(k); {
	case !known:
		fs.finished.set(k, end) // once is enough
		fs.say(k, crypto.TransferAccept)
	case end.whole:
		fs.sayHave(k, end.last)
	}
}

// offered has the policy decide about a file.
func (fs *files) offered(k transferKey, a *arrival, p *crypto.TransferPart) {
	t := &incoming{
		key: k, header: *p.Header, layout: layout{p.Header.Size, int64(len(p.Data))},
		data: p.Data, offer: a, stop: func() {}, touched: time.Now(),
	}
	switch end, _ := fs.finished.get(k); {
	case end.whole && end.header == headerSum(&t.header): // and not another file
		a.acknowledge()
		fs.sayHave(k, end.last)
		return
	case end.offer == a.frame.ID: // its acknowledgement was lost
		a.acknowledge()
		return
	case !t.fits(p):
		a.acknowledge()
		fs.finished.set(k, transferEnd{offer: a.frame.ID})
		fs.say(k, crypto.TransferCancel)
		return
	case fs.isCrowded(k.peer):
		fs.fail(t, ErrFileRoom)
		return
	}
	offer := t.describe()
	for _, other := range fs.in {
		offer.Underway += other.layout.size - other.layout.offset(other.next)
	}
	fs.in[k] = t
	ctx, stop := context.WithCancel(fs.c.life)
	t.stop = stop
	fs.running.Go(func() {
		v := verdict{t: t}
		dir, err := fs.policy.Accept(ctx, offer)
		if err == nil {
			err = ctx.Err() // the hidden file may be another offer's of the same transfer by now
		}
		if err == nil {
			v.file, err = openPartial(ctx, dir, t.key, t.layout)
		}
		v.err = err
		select {
		case fs.verdicts <- v:
		case <-fs.c.life.Done():
			v.file.close()
		}
	})
}

func (t *incoming) describe() FileOffer {
	return FileOffer{From: t.key.peer, Transfer: t.key.id, Name: t.header.Name, Size: t.header.Size}
}

// isCrowded says whether there is no room for another transfer from a sender.
func (fs *files) isCrowded(from crypto.PublicKey) bool {
	p := fs.policy
	isStranger := func(k crypto.PublicKey) bool { return p.Known != nil && !p.Known(k) }
	own, strangers := 0, 0
	for k := range fs.in {
		if k.peer == from {
			own++
		}
		if isStranger(k.peer) {
			strangers++
		}
	}
	return own >= p.PerSender || len(fs.in) >= p.Transfers || isStranger(from) && strangers >= p.Transfers/2
}

// fits says whether a part has the one length that it can have.
func (t *incoming) fits(p *crypto.TransferPart) bool {
	i := int64(p.Index)
	return t.layout.first <= t.layout.size && i < t.layout.parts() &&
		len(p.Data) == t.layout.length(i) && p.Last == (i == t.layout.parts()-1)
}

// offeredAgain takes part 0 of a transfer that is known: the relay has brought it
// again, or a sender that was restarted wants to know how far it has come.
func (fs *files) offeredAgain(t *incoming, a *arrival, p *crypto.TransferPart) {
	if *p.Header != t.header || int64(len(p.Data)) != t.layout.first {
		a.acknowledge()
		fs.fail(t, ErrFileDamaged)
		return
	}
	repeat := a.frame.ID == t.offer.frame.ID
	if t.file == nil {
		if !repeat {
			t.offer.acknowledge()
		}
		t.offer = a
		return
	}
	a.acknowledge()
	if !repeat { // who is told what there is knows that it was accepted
		t.offer, t.due = a, true
	}
}

// answered begins with a file, or refuses it.
func (fs *files) answered(v verdict) {
	t := v.t
	switch {
	case fs.in[t.key] != t: // ended meanwhile
		v.file.remove()
		return
	case v.err != nil:
		fs.fail(t, v.err)
		return
	}
	t.file, t.next, t.due = v.file, v.file.whole, true
	t.touched = time.Now()
	fs.say(t.key, crypto.TransferAccept)
	if t.next == 0 {
		fs.write(t, t.data)
	} else {
		fs.progress(t)
	}
	t.data = nil
	t.offer.acknowledge()
}

// follow takes a part after the first.
func (fs *files) follow(t *incoming, a *arrival, p *crypto.TransferPart) {
	defer a.acknowledge()
	switch i := int64(p.Index); {
	case !t.fits(p):
		fs.fail(t, ErrFileDamaged)
	case i > t.next && t.lost != t.next:
		t.lost, t.missed = t.next, true
	case i == t.next:
		fs.write(t, p.Data)
	}
}

// write writes the next part.
func (fs *files) write(t *incoming, data []byte) {
	if err := t.file.write(data); err != nil {
		fs.fail(t, err)
		return
	}
	t.next++
	t.due, t.touched = true, time.Now()
	fs.progress(t)
}

// progress tells of what has been written, and makes a file of it if that is all.
func (fs *files) progress(t *incoming) {
	e := FileEvent{FileOffer: t.describe(), Done: t.file.size}
	if t.next < t.layout.parts() {
		fs.policy.Event(e)
		return
	}
	path, err := t.file.finish(t.header.Name, t.header.SHA256)
	if err != nil {
		fs.fail(t, err)
		return
	}
	last := uint32(t.next - 1)
	fs.drop(t, transferEnd{whole: true, last: last, header: headerSum(&t.header)})
	fs.awaitTold(fs.sayHave(t.key, last)) // before the program hears of it, and maybe ends
	e.Path = path
	fs.policy.Event(e)
}

// fail ends a transfer from our side.
func (fs *files) fail(t *incoming, why error) {
	fs.abandon(t, why)
	fs.say(t.key, crypto.TransferCancel)
}

// CancelFile ends a transfer that comes in, or is offered, from our side: its
// last event has ErrFileRefused, and the sender's SendFile returns. A transfer that
// is over is left alone.
func (c *Client) CancelFile(from crypto.PublicKey, transfer [16]byte) {
	c.files.post(0, func() {
		if t := c.files.in[transferKey{from, transfer}]; t != nil {
			c.files.fail(t, ErrFileRefused)
		}
	})
}

// cancelled ends a transfer that the sender has ended.
func (fs *files) cancelled(k transferKey) {
	if t := fs.in[k]; t != nil {
		fs.abandon(t, ErrFileCancelled)
	}
}

func (fs *files) abandon(t *incoming, why error) {
	e := FileEvent{FileOffer: t.describe(), Err: why}
	if t.file != nil {
		e.Done = t.file.size
		t.file.remove()
	}
	fs.drop(t, transferEnd{offer: t.offer.frame.ID})
	fs.policy.Event(e)
}

// drop forgets a transfer but for its end.
func (fs *files) drop(t *incoming, end transferEnd) {
	t.stop()
	delete(fs.in, t.key)
	fs.finished.set(t.key, end)
	if t.file == nil {
		t.offer.acknowledge()
	}
}

// report tells the senders how far their files have come, once for all that was
// taken meanwhile. A sender that is told the same again sends what follows again.
func (fs *files) report() {
	for _, t := range fs.in {
		if t.file == nil {
			continue
		}
		have := uint32(t.next - 1)
		if t.due {
			fs.sayHave(t.key, have)
		}
		if t.missed {
			fs.sayHave(t.key, have)
		}
		t.due, t.missed = false, false
	}
}

func (fs *files) say(k transferKey, op crypto.TransferOp) {
	fs.tell(k.peer, crypto.TransferControl{Transfer: k.id, Op: op})
}

func (fs *files) sayHave(k transferKey, last uint32) *pending {
	return fs.tell(k.peer, crypto.TransferControl{Transfer: k.id, Op: crypto.TransferHave, Have: last})
}

// expire ends what has made no progress.
func (fs *files) expire() {
	for _, t := range fs.in {
		if time.Since(t.touched) >= fs.policy.Idle {
			fs.fail(t, ErrFileStalled)
		}
	}
}

// close leaves everything as the next Client may find it.
func (fs *files) close() {
	for _, t := range fs.in {
		t.stop()
		t.file.close()
	}
}
