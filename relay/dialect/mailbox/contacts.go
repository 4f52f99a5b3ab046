package mailbox

import (
	"context"

	"github.com/sotto-relay/sotto/crypto"
)

// Contacts say who may use a mailbox. A file of keys is a *policy.KeyFile, whose
// Watch has it follow the file.
type Contacts interface {
	// Known says whether a key is a contact. It may be called concurrently, and
	// waits no longer than ctx. An error is logged, and the client is asked to come
	// back later.
	Known(ctx context.Context, key crypto.PublicKey) (bool, error)
}

// Open are Contacts that know everybody.
type Open struct{}

// Known returns true.
func (Open) Known(context.Context, crypto.PublicKey) (bool, error) { return true, nil }

// nobody are the Contacts of a Handler that was given none.
type nobody struct{}

func (nobody) Known(context.Context, crypto.PublicKey) (bool, error) { return false, nil }
