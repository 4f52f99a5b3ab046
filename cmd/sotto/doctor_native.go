package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay/client"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
)

// The checks of what sessions have after handshake v2 (spec native.md).

// second logs Ben in, unless he is.
func (e *examination) second(ctx context.Context) error {
	if e.ben != nil {
		return nil
	}
	ben, err := crypto.GenerateIdentity()
	if err != nil {
		return err
	}
	e.ben, err = e.logIn(ctx, ben)
	return err
}

func (e *examination) checkRequest(ctx context.Context) (status, text, advice string) {
	start := time.Now()
	answer, err := e.ann.request(ctx, `{"t":"capabilities"}`)
	if err != nil {
		return unanswered("tell its capabilities", "clients cannot know its limits", err)
	}
	var said frame.Capabilities
	if err := json.Unmarshal(answer.Payload, &said); err != nil {
		return statusFail, "its capabilities are none: " + err.Error(), "is it a sotto relay?"
	}
	return statusOK, fmt.Sprintf("requests are answered in %v; it is version %s, and its load %s", since(start), said.Version, said.LoadTier), ""
}

// checkAck has Ben acknowledge a message, and Ann hear of it.
func (e *examination) checkAck(ctx context.Context) (status, text, advice string) {
	fail := func(what string, err error) (string, string, string) {
		return statusFail, what + ": " + err.Error(), "see the relay's log"
	}
	if err := e.second(ctx); err != nil {
		return fail("a second login", err)
	}
	start := time.Now()
	id, err := e.ann.send(ctx, e.ben.id.Public(), "to be acknowledged")
	if err != nil {
		return fail("sending to somebody who is there", err)
	}
	f, err := e.ben.next(ctx, frame.TypeSealed, id)
	if err != nil {
		return fail("a message to somebody who is there", err)
	}
	e.ben.client.Ack(&f)
	for {
		receipt, err := e.ann.receipt(ctx, id)
		switch {
		case err != nil:
			return fail("the receipt of one who has read", err)
		case receipt.Status != frame.ReceiptAcknowledged:
			continue // the relay's own
		}
		if err := brep.VerifyAck(&receipt, e.ann.id.Public(), e.ben.id.Public()); err != nil {
			return statusFail, "a receipt that the recipient has not signed: " + err.Error(), "the relay lies, or is damaged: use another"
		}
		return statusOK, fmt.Sprintf("a message and the receipt that its recipient has signed take %v", since(start)), ""
	}
}

// checkCard has the relay keep a card of Ann's for Ben, and erase it.
func (e *examination) checkCard(ctx context.Context) (status, text, advice string) {
	const without = "what is sent to those who are new is not safe from quantum computers"
	if err := e.second(ctx); err != nil {
		return statusFail, "a second login: " + err.Error(), "see the relay's log"
	}
	keys, err := crypto.GenerateCardKeys()
	if err != nil {
		return statusFail, err.Error(), "this machine has no randomness"
	}
	now := time.Now()
	card, err := crypto.NewCard(e.ann.id, 1, now, now.Add(time.Hour), keys)
	if err != nil {
		return statusFail, err.Error(), "is the clock of this machine right?"
	}
	encoded := base64.StdEncoding.EncodeToString(card.Bytes())
	if _, err := e.ann.request(ctx, `{"t":"put_card","card":"`+encoded+`"}`); err != nil {
		return unanswered("keep a card", without, err)
	}
	answer, err := e.ben.request(ctx, `{"t":"get_card","key":"`+e.ann.id.Public().String()+`"}`)
	if err != nil {
		return unanswered("give out a card", without, err)
	}
	if answer.Text("card") != encoded {
		return statusFail, "a card comes back changed", "the relay lies, or is damaged: use another"
	}
	if _, err := e.ann.request(ctx, `{"t":"erase"}`); err != nil {
		return unanswered("erase what it keeps", "people cannot have it forget them", err)
	}
	return statusOK, "a card is kept, given out and erased", ""
}

// checkTopic has Ben subscribe to a topic, and Ann publish to it.
func (e *examination) checkTopic(ctx context.Context) (status, text, advice string) {
	fail := func(what string, err error) (string, string, string) {
		return unanswered(what, "sotto pub and sub do not work", err)
	}
	if err := e.second(ctx); err != nil {
		return fail("let a second client in", err)
	}
	topic := "doctor/" + e.ann.id.Public().String() // nobody else's
	if _, err := e.ben.request(ctx, `{"t":"subscribe","topic":"`+topic+`"}`); err != nil {
		return fail("let subscribe to a topic", err)
	}
	start := time.Now()
	published := frame.Publication{Name: []byte(topic), Content: []byte("news")}
	f := frame.Brep{Type: frame.TypePublish, Flags: frame.FlagReceipt, Payload: published.Append(nil)}
	_, _ = rand.Read(f.ID[:]) // never fails
	f.Signature = crypto.SignFrame(e.ann.id, uint8(f.Type), f.ID, f.Payload)
	if err := e.ann.client.Send(ctx, &f); err != nil {
		return fail("let publish to a topic", err)
	}
	receipt, err := e.ann.receipt(ctx, f.ID)
	if err == nil && receipt.Status == frame.ReceiptRefused {
		err = &client.RefusedError{Code: receipt.Code, Reason: receipt.Reason}
	}
	if err != nil {
		return fail("let publish to a topic", err)
	}
	got, err := e.ben.next(ctx, frame.TypeMessage, f.ID)
	if err != nil {
		return fail("bring what was published", err)
	}
	if string(got.Payload) != string(f.Payload) || got.Signature != f.Signature {
		return statusFail, "what was published comes changed", "the relay lies, or is damaged: use another"
	}
	return statusOK, fmt.Sprintf("what is published to a topic comes in %v", since(start)), ""
}

// unanswered is what was found when something did not work, without which clients
// lack something; that is no failure of a relay that does not know it.
func unanswered(what, without string, err error) (status, text, advice string) {
	var refused *client.RefusedError
	if errors.As(err, &refused) && refused.Code == frame.CodeUnknownVerb {
		return statusWarn, "it does not know how to " + what, "update it: without that " + without
	}
	return statusFail, "it did not " + what + ": " + err.Error(), "see the relay's log; does a policy forbid it?"
}
