package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/relay/client"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport"
)

// A patient is a login of an identity that was made for it. It is used by one
// goroutine, and has one of its own until it is closed.
type patient struct {
	id     *crypto.Identity
	client *brep.Client
	frames chan frame.Brep // with payloads of their own; closed at the end, after err is set
	err    error
	asked  int64 // requests
}

func login(ctx context.Context, dial transport.Dialer, id *crypto.Identity, expect *crypto.PublicKey) (*patient, error) {
	conn, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	c, err := brep.Connect(ctx, conn, &brep.ClientOptions{Identity: id, Expect: expect})
	if err != nil {
		return nil, err
	}
	p := &patient{id: id, client: c, frames: make(chan frame.Brep, 64)}
	go p.read()
	return p, nil
}

// read keeps the latest frames: what nobody waits for makes room, such as receipts
// of messages that were stored after all.
func (p *patient) read() {
	defer close(p.frames)
	for {
		f, err := p.client.Receive()
		switch {
		case errors.Is(err, transport.ErrTooLarge):
			continue
		case err != nil:
			p.err = err
			return
		}
		f.Payload = append([]byte(nil), f.Payload...)
		for kept := false; !kept; {
			select {
			case p.frames <- f:
				kept = true
			default:
				select {
				case <-p.frames:
				default:
				}
			}
		}
	}
}

func (p *patient) close() {
	_ = p.client.Close()
	for range p.frames {
	}
}

func (p *patient) relay() handshake.Relay { return p.client.Relay() }

// send seals a text and returns its id. The relay is asked for a receipt.
func (p *patient) send(ctx context.Context, to crypto.PublicKey, text string) ([16]byte, error) {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	key, err := to.SealKey()
	if err != nil {
		return id, err
	}
	payload, sig, err := crypto.Seal(p.id, key, id, crypto.Content{Type: crypto.Text, Data: []byte(text)})
	if err != nil {
		return id, err
	}
	return id, p.client.Send(ctx, &frame.Brep{
		Type: frame.TypeSealed, Flags: frame.FlagReceipt, ID: id, Signature: sig, Payload: payload,
	})
}

// next waits for a frame of the type under that id, or any if it is one that has
// its id inside, or the relay's refusal.
func (p *patient) next(ctx context.Context, t frame.Type, id [16]byte) (frame.Brep, error) {
	for {
		select {
		case <-ctx.Done():
			return frame.Brep{}, errors.New("it did not come in time")
		case f, ok := <-p.frames:
			if !ok {
				return frame.Brep{}, p.err
			}
			if f.Type == t && (f.ID == id || t == frame.TypeReceipt || t == frame.TypeResponse) {
				return f, nil
			}
			if err := refusal(&f, id); err != nil {
				return frame.Brep{}, err
			}
		}
	}
}

// refusal returns what a frame says against the message with that id.
func refusal(f *frame.Brep, id [16]byte) error {
	switch f.Type {
	case frame.TypeError:
		e, err := frame.DecodeError(f.Flags, f.Payload)
		if err == nil {
			err = fmt.Errorf("the relay says: %s", e.Sentence)
		}
		return err
	case frame.TypeReceipt:
		r, err := frame.DecodeReceipt(f.Payload)
		if err == nil && r.ID == id && r.Status == frame.ReceiptRefused {
			err = fmt.Errorf("the relay refused it: %s", r.Reason)
		}
		return err
	}
	return nil
}

// receipt waits for what the relay says about a message.
func (p *patient) receipt(ctx context.Context, id [16]byte) (frame.Receipt, error) {
	for {
		f, err := p.next(ctx, frame.TypeReceipt, id)
		if err != nil {
			return frame.Receipt{}, err
		}
		if r, err := frame.DecodeReceipt(f.Payload); err != nil || r.ID == id {
			return r, err
		}
	}
}

// request asks the relay for something, in JSON.
func (p *patient) request(ctx context.Context, body string) (*frame.Response, error) {
	p.asked++
	f := frame.Brep{Type: frame.TypeRequest, Payload: frame.AppendRequest(nil, p.asked, []byte(body))}
	_, _ = rand.Read(f.ID[:]) // never fails
	if err := p.client.Send(ctx, &f); err != nil {
		return nil, err
	}
	for {
		f, err := p.next(ctx, frame.TypeResponse, f.ID)
		if err != nil {
			return nil, err
		}
		switch r, err := frame.DecodeResponse(f.Payload); {
		case err != nil:
			return nil, err
		case r.Req == p.asked && r.Refused:
			return nil, &client.RefusedError{Code: r.Code, Reason: r.Reason}
		case r.Req == p.asked:
			return r, nil
		}
	}
}

// nodeInfo asks the relay about itself and others, and waits for the answer: that
// about the client that was asked for, if there is one in it.
func (p *patient) nodeInfo(ctx context.Context, question frame.NodeInfo, want frame.NodeInfoSubtype) (frame.NodeInfo, error) {
	payload, err := question.Append(nil)
	if err != nil {
		return frame.NodeInfo{}, err
	}
	if err := p.client.Send(ctx, &frame.Brep{Type: frame.TypeNodeInfo, Payload: payload}); err != nil {
		return frame.NodeInfo{}, err
	}
	for {
		f, err := p.next(ctx, frame.TypeNodeInfo, [16]byte{})
		if err != nil {
			return frame.NodeInfo{}, err
		}
		switch n, err := frame.DecodeNodeInfo(f.Payload); {
		case errors.Is(err, frame.ErrUnknownSubtype):
		case err != nil:
			return n, err
		case n.Subtype == want && n.Client == question.Client:
			return n, nil
		}
	}
}

// open waits for a sealed message and returns its text.
func (p *patient) open(ctx context.Context, from crypto.PublicKey, id [16]byte) (string, error) {
	f, err := p.next(ctx, frame.TypeSealed, id)
	if err != nil {
		return "", err
	}
	key, err := p.id.OpenKey()
	if err != nil {
		return "", err
	}
	c, err := crypto.OpenSealed(from, id, &f.Signature, f.Payload, key)
	return string(c.Data), err
}

// roundTrip sends a text to oneself, and returns how long it took.
func (p *patient) roundTrip(ctx context.Context) (time.Duration, error) {
	const text = "to myself"
	start := time.Now()
	id, err := p.send(ctx, p.id.Public(), text)
	if err != nil {
		return 0, err
	}
	got, err := p.open(ctx, p.id.Public(), id)
	switch {
	case err != nil:
		return 0, err
	case got != text:
		return 0, errors.New("it came back changed")
	}
	return time.Since(start), nil
}
