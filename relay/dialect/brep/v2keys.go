package brep

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay"
)

// A key that has completed v2 here is refused v1 from then on (spec brep.md,
// "Handshake v2"). Those keys are kept in the state store:
//
//	bucket  "brep-v2"
//	key     the client's public key, 32 bytes; deleting it lifts the refusal
//	value   when it last logged in, to the day: u64 big-endian, seconds since 1970
const v2Bucket = "brep-v2"

const (
	maxV2Keys = 1_000_000

	// The store cannot say how many keys there are. So every new key has one
	// chance in trimEvery to have all of them counted, and those above keptV2Keys
	// removed. That 20 x trimEvery keys pass without a count, and so the bound, is
	// as likely as e^-20.
	trimEvery  = 1_000
	keptV2Keys = maxV2Keys - 20*trimEvery

	// lastUseStep is how exact the time of the last login is kept: a login that
	// would change it by less writes nothing.
	lastUseStep = 24 * time.Hour
)

// allowV1 says whether a key may log in with v1. Without an answer from the
// store it may not.
func (s *session) allowV1(key crypto.PublicKey) bool {
	_, known, err := s.port.State().Get(context.Background(), v2Bucket, string(key[:]))
	if err != nil {
		s.stateFailed(err)
	}
	return err == nil && !known
}

// rememberV2 records that the session's key has completed v2. A store that fails
// or is full does not lock clients out: they have proved more than v1 asks for.
func (s *session) rememberV2(ctx context.Context) {
	state, key := s.port.State(), string(s.key[:])
	now := time.Now()
	old, known, err := state.Get(ctx, v2Bucket, key)
	if err == nil && known && now.Sub(decodeTime(old)) < lastUseStep {
		return
	}
	if err == nil {
		err = state.Put(ctx, v2Bucket, key, encodeTime(now))
	}
	if err == nil && !known && rand.IntN(trimEvery) == 0 {
		err = trim(ctx, state, v2Bucket, keptV2Keys)
	}
	if err != nil {
		s.stateFailed(err)
	}
}

// stateFailed is counted, and logged at a level that strangers cannot flood:
// they can make it happen by logging in.
func (s *session) stateFailed(err error) {
	s.port.Ignored("state store failed")
	s.port.Log().Debug("brep: state store", "err", err)
}

// trim removes the items of a bucket whose times are earliest, if there are more
// than most.
func trim(ctx context.Context, state relay.State, bucket string, most int) error {
	var times []time.Time
	for it, err := range state.Range(ctx, bucket, "") {
		if err != nil {
			return err
		}
		times = append(times, decodeTime(it.Value))
	}
	excess := len(times) - most
	if excess <= 0 {
		return nil
	}
	slices.SortFunc(times, time.Time.Compare)
	newest := times[excess-1] // of those to remove
	for it, err := range state.Range(ctx, bucket, "") {
		if err != nil {
			return err
		}
		if excess > 0 && !decodeTime(it.Value).After(newest) {
			if err := state.Delete(ctx, bucket, it.Key); err != nil {
				return err
			}
			excess--
		}
	}
	return nil
}

// stateTimeSize is the length of the time that the values of our buckets begin
// with.
const stateTimeSize = 8

func encodeTime(t time.Time) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(t.Unix()))
}

// decodeTime returns the start of time for a value that is none.
func decodeTime(value []byte) time.Time {
	if len(value) < stateTimeSize {
		return time.Time{}
	}
	return time.Unix(int64(binary.BigEndian.Uint64(value)), 0)
}
