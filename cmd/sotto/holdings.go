package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/inbox/disk"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/blind/audit"
	"github.com/sotto-relay/sotto/relay/dialect/mailbox"
	"github.com/sotto-relay/sotto/relay/policy"
)

// Holdings are the files that a relay has open beside its listeners.
type holdings struct {
	inbox    inbox.Store
	store    *disk.DB         // what inbox and state are in; nil: memory
	state    relay.State      // nil: in memory
	contacts mailbox.Contacts // nil: there is no mailbox
	audit    *audit.Log       // nil: none is kept
	relays   *policy.KeyFile  // that may link; nil: those named alone, or all

	reload []func() error // for SIGHUP
	close  []func() error // in reverse
}

// hold opens the holdings. The directory of --data is there afterwards.
func (s *service) hold(ctx context.Context) (_ *holdings, err error) {
	h := new(holdings)
	defer func() {
		if err != nil {
			_ = h.end()
		}
	}()
	if err := s.holdStore(h); err != nil {
		return nil, err
	}
	if err := s.holdRelays(h); err != nil {
		return nil, err
	}
	switch s.contacts {
	case "":
	case "open":
		h.contacts = mailbox.Open{}
	default:
		if err := s.holdContacts(ctx, h); err != nil {
			return nil, err
		}
	}
	if s.audit != "" {
		file, err := audit.OpenFile(s.audit)
		if err != nil {
			return nil, fmt.Errorf("--audit: %w", err)
		}
		h.audit = &audit.Log{Sinks: []audit.Sink{file}, Logger: s.log}
		h.reload = append(h.reload, file.Reopen)
		h.close = append(h.close, h.audit.Close)
	}
	return h, nil
}

func (s *service) holdStore(h *holdings) error {
	if s.data == "" {
		h.inbox = inbox.NewMemory(nil)
		s.log.Warn("everything is kept in memory, and lost when this program ends: give --data a directory")
		return nil
	}
	if err := os.MkdirAll(s.data, 0o700); err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	db, err := disk.Open(storeDir(s.data), &disk.Options{Quarantine: s.quarantine, Logger: s.log})
	if err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	h.store, h.inbox, h.state = db, db.Inbox(), db.State()
	h.close = append(h.close, db.Close)
	return nil
}

// holdContacts opens the file of contacts and follows it.
func (s *service) holdContacts(ctx context.Context, h *holdings) error {
	file, err := policy.OpenKeyFile(s.contacts)
	if err != nil {
		return fmt.Errorf("--contacts: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		file.Watch(ctx, func(_ []crypto.PublicKey, err error) {
			if err != nil {
				s.log.Error("cannot read the contacts; those before stay", "err", err)
			}
		})
	}()
	h.contacts = file
	h.reload = append(h.reload, func() error { _, err := file.Reload(); return err })
	h.close = append(h.close, func() error { cancel(); <-ended; return nil })
	return nil
}

// end closes everything.
func (h *holdings) end() error {
	var errs []error
	for i := len(h.close) - 1; i >= 0; i-- {
		errs = append(errs, h.close[i]())
	}
	return errors.Join(errs...)
}
