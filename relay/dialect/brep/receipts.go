package brep

import (
	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
)

// isRepeat says whether a frame has come before. It is then answered as the first
// one was, or will be.
func (s *session) isRepeat(f *frame.Brep) bool {
	x := s.sent
	if x == nil || f.ID == (relay.ID{}) {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	first := x.recall(f, s.number)
	if first == nil {
		return false
	}
	s.port.Ignored("repeat")
	if first.told != 0 {
		first.told = s.number
	}
	switch {
	case first.status == 0:
		first.asks = s
	case f.Flags&frame.FlagReceipt != 0:
		s.receipt(f.ID, first.outcome)
	}
	return true
}

// answer tells the peer of an extended session what became of its frame: all of
// it if it wanted a receipt, else a refusal only. It is called from any
// goroutine.
func (s *session) answer(id relay.ID, flags uint8, o relay.Outcome) {
	if s.form == formLegacy || o.Status == relay.Pending {
		return
	}
	s.report(id, flags, outcomeOf(o), o.Status == relay.Refused)
}

// report tells the peer an outcome, if that is news: with a receipt if it wants
// them, else with an ERROR if it has to know. Replies are made under the lock, so
// that they leave in the order of what is known.
func (s *session) report(id relay.ID, flags uint8, o outcome, must bool) {
	to := s
	if x := s.sent; x != nil && id != (relay.ID{}) {
		x.mu.Lock()
		defer x.mu.Unlock()
		asks, news := x.learn(id, o, s.number)
		switch {
		case !news:
			return
		case asks != nil:
			to = asks
		}
	}
	switch {
	case flags&frame.FlagReceipt != 0 && id != relay.ID{}:
		to.receipt(id, o)
	case must:
		to.replyError(id, o.code, o.code.String())
	}
}

func (s *session) receipt(id relay.ID, o outcome) {
	r := frame.Receipt{ID: id, Status: o.status}
	switch o.status {
	case frame.ReceiptAcknowledged:
		r.Recipient, r.Signature = o.proof.recipient, o.proof.signature
	case frame.ReceiptRefused, frame.ReceiptExpired:
		r.Code, r.Reason = frame.Code(o.code), o.code.String()
	}
	var buf [256]byte
	s.reply(frame.TypeReceipt, 0, r.Append(buf[:0]))
}

func outcomeOf(o relay.Outcome) outcome {
	switch o.Status {
	case relay.Delivered:
		return outcome{status: frame.ReceiptHandedOver}
	case relay.Stored:
		return outcome{status: frame.ReceiptStored}
	}
	return outcome{status: frame.ReceiptRefused, code: o.Code}
}

// outcomeLater returns what a notice says of a message that was taken before, and
// the flags of the message.
func outcomeLater(n *relay.Notice) (o outcome, flags uint8, ok bool) {
	switch n.Kind {
	case relay.NoticeAcknowledged:
		p := new(proof)
		copy(p.recipient[:], n.Peer.Name)
		copy(p.signature[:], n.Proof)
		// Who signs has seen that a receipt is wanted.
		return outcome{status: frame.ReceiptAcknowledged, proof: p}, frame.FlagReceipt, true
	case relay.NoticeStored:
		return outcome{status: frame.ReceiptStored}, n.Flags, true
	case relay.NoticeExpired:
		return outcome{status: frame.ReceiptExpired, code: relay.CodeExpired}, n.Flags, true
	case relay.NoticeDropped:
		return outcome{status: frame.ReceiptRefused, code: relay.CodeInboxFull}, n.Flags, true
	}
	return outcome{}, 0, false
}

// Settled tells the sender what became of a message on its way to the inbox.
func (s *session) Settled(r relay.Receipt) { s.answer(r.ID, r.Flags, r.Outcome) }

// Notify passes on what the relay has to say.
func (s *session) Notify(n relay.Notice) {
	if s.form == formLegacy {
		return
	}
	switch n.Kind {
	case relay.NoticeWaiting, relay.NoticeMatched:
		s.match(&n)
	case relay.NoticeGap:
		s.gap(&n)
	default:
		if o, flags, ok := outcomeLater(&n); ok {
			s.report(n.ID, flags, o, false)
		}
	}
}

// Follow notes what became of a message whose sender is away. He may ask.
func (c *common) Follow(sender relay.Address, n relay.Notice) {
	o, _, ok := outcomeLater(&n)
	if !ok || len(sender.Name) != len(crypto.PublicKey{}) {
		return
	}
	if x := c.memory.find(crypto.PublicKey([]byte(sender.Name))); x != nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.learn(n.ID, o, 0)
	}
}
