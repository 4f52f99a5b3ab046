package relay

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{
			acks: true, tellMe: true, settled: func(Receipt) {},
			limits: DialectLimits{InboxTTL: time.Hour, InboxMessages: 2, DropOldest: true},
		})
		alice, bob := b.as("alice"), b.as("bob")
		synctest.Wait()
		alice.say("send bob one")
		bob.expect("alice one")
		bob.say("ack alice one")
		alice.expect("bob: one acknowledged")
		bob.say("ack alice one")
		bob.say("ack alice none")
		alice.silent()

		// Not acknowledged in time: stored, and not sent again while it may be.
		alice.say("send bob two")
		bob.expect("alice two")
		time.Sleep(9 * time.Second)
		alice.say("send bob three")
		bob.expect("alice three")
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		assert.EqualValues(t, 2, b.count.queued.Load())
		alice.expect("bob: two stored")
		assert.EqualValues(t, 1, b.count.queued.Load())
		alice.expect("bob: three stored")
		bob.silent()
		bob.say("ack alice two")
		alice.expect("bob: two acknowledged")
		synctest.Wait()
		b.balance()
		n, _, err := b.Inbox.Totals(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		require.NoError(t, bob.Close(0, ""))
		synctest.Wait()

		alice.say("send bob four")
		alice.expect("stored")
		alice.say("send bob five")
		alice.expect("bob: three dropped", "stored")
		time.Sleep(2 * time.Hour)
		alice.expect("bob: four expired", "bob: five expired")
		synctest.Wait()
		assert.Zero(t, b.balance().Held)
	})
}

// A session that goes leaves what it has not acknowledged: its sender is told.
func TestNoticeOfReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{acks: true, tellMe: true})
		alice, bob := b.as("alice"), b.as("bob")
		synctest.Wait()
		alice.say("send bob one")
		bob.expect("alice one")
		require.NoError(t, bob.Close(0, ""))
		alice.expect("bob: one stored")
		bob = b.as("bob")
		bob.expect("alice one")
		time.Sleep(time.Minute)
		alice.silent() // not stored twice
		bob.say("ack alice one")
		alice.expect("bob: one acknowledged")
		synctest.Wait()
		assert.Zero(t, b.balance().Held)
	})
}

func TestAckTimeoutEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{acks: true, settled: func(Receipt) {}})
		alice, bob := b.as("alice"), b.as("bob")
		synctest.Wait()
		for _, text := range []string{"one", "two", "three"} {
			alice.say("send bob %s", text)
			bob.expect("alice " + text)
			bob.say("ack alice %s", text)
			time.Sleep(4 * time.Second)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		st := b.balance()
		assert.EqualValues(t, 3, st.Delivered)
		assert.Zero(t, st.Held)
	})
}
