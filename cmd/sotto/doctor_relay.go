package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/transport"
)

// The checks of the relay itself.

// logIn logs a fresh identity in.
func (e *examination) logIn(ctx context.Context, id *crypto.Identity) (*patient, error) {
	dial, err := e.dialer()
	if err != nil {
		return nil, err
	}
	expect, err := handshake.Expect(e.relayKey, handshake.NewFileTrust(e.known), e.address)
	if err != nil {
		return nil, err
	}
	return login(ctx, dial, id, expect)
}

func (e *examination) checkLogin(ctx context.Context) (status, text, advice string) {
	id, err := crypto.GenerateIdentity()
	if err != nil {
		return statusFail, err.Error(), "this machine has no randomness"
	}
	start := time.Now()
	e.ann, err = e.logIn(ctx, id)
	var mismatch *handshake.KeyMismatchError
	switch {
	case err == nil:
		return statusOK, fmt.Sprintf("handshake v2 with a fresh key, in %v", since(start)), ""
	case errors.As(err, &mismatch) && e.relayKey != nil:
		return statusFail, fmt.Sprintf("the relay has the key %v", mismatch.Got), "correct --relay-key, or this is another relay, or somebody is in between"
	case errors.As(err, &mismatch):
		return statusFail, fmt.Sprintf("the relay has the key %v, and had %v before", mismatch.Got, mismatch.Want),
			"ask its operator; if the new one is right, delete its line in " + e.known
	case errors.Is(err, handshake.ErrLegacyRelay):
		return statusFail, "the relay speaks the old handshake only", "update it: with that one it proves nothing to its clients"
	}
	return statusFail, err.Error(), "is it a relay that speaks brep there, and may strangers log in?"
}

func (e *examination) checkKey(context.Context) (status, text, advice string) {
	r := e.ann.relay()
	text = fmt.Sprintf("%v (%s)", r.Key, r.Key.Fingerprint())
	switch {
	case e.relayKey != nil:
		return statusOK, text + " is that of --relay-key", ""
	case !r.FirstContact:
		return statusOK, text + " is the one seen before", ""
	}
	return statusWarn, text + " is new here", "compare it with what its operator says, and give it to clients as --relay-key"
}

func (e *examination) checkLive(ctx context.Context) (status, text, advice string) {
	const tries = 5
	var took []time.Duration
	for range tries {
		d, err := e.ann.roundTrip(ctx)
		if err != nil {
			return statusFail, "a message to oneself: " + err.Error(), "see the relay's log; does a policy forbid it?"
		}
		took = append(took, d)
	}
	slices.Sort(took)
	return statusOK, fmt.Sprintf("a message to oneself takes %v (median of %d)", took[tries/2].Round(10*time.Microsecond), tries), ""
}

// checkInbox has Ann write to Ben, who comes later.
func (e *examination) checkInbox(ctx context.Context) (status, text, advice string) {
	const body = "for later"
	fail := func(what string, err error) (string, string, string) {
		return statusFail, what + ": " + err.Error(), "see the relay's log"
	}
	ben, err := crypto.GenerateIdentity()
	if err != nil {
		return fail("an identity", err)
	}
	id, err := e.ann.send(ctx, ben.Public(), body)
	if err != nil {
		return fail("sending to somebody who is away", err)
	}
	receipt, err := e.ann.receipt(ctx, id)
	switch {
	case err != nil:
		return fail("the receipt for a message to somebody who is away", err)
	case receipt.Status == frame.ReceiptRefused:
		return statusWarn, "the relay keeps nothing for those who are away: " + receipt.Reason, "give it an inbox, unless that is meant"
	}
	if e.ben, err = e.logIn(ctx, ben); err != nil {
		return fail("a second login", err)
	}
	got, err := e.ben.open(ctx, e.ann.id.Public(), id)
	if err == nil && got != body {
		err = errors.New("it came back changed")
	}
	if err != nil {
		return fail("a message that waited", err)
	}
	if e.ann.relay().Features&handshake.FeatureDurable == 0 {
		return statusOK, "a message waited for its recipient (in memory: a restart loses it)", ""
	}
	return statusOK, "a message waited for its recipient", ""
}

// checkClose sends what is no frame, and wants to be shown out for it.
func (e *examination) checkClose(ctx context.Context) (status, text, advice string) {
	const advise = "what stands between does not pass closes on, or it is no sotto relay"
	dial, err := e.dialer()
	if err != nil {
		return statusFail, err.Error(), ""
	}
	c, err := dial(ctx)
	if err != nil {
		return statusFail, err.Error(), "a third connection was refused: see the relay's limits"
	}
	defer c.Close(transport.CloseNormal, "")
	defer context.AfterFunc(ctx, func() { _ = c.Close(transport.CloseNormal, "") })()
	if _, err := c.Write(transport.Binary, [][]byte{make([]byte, frame.BrepHeaderSize)}); err != nil {
		return statusWarn, err.Error(), advise
	}
	for err == nil {
		_, _, err = c.Read()
	}
	var closed *transport.CloseError
	switch {
	case ctx.Err() != nil:
		return statusWarn, "malformed data is not answered", advise
	case e.isWeb() && (!errors.As(err, &closed) || closed.Code != transport.CloseProtocol):
		return statusWarn, "malformed data is not answered with close code 1002: " + err.Error(), advise
	}
	return statusOK, "malformed data ends the connection", ""
}
