package jsonmsg

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
)

// TestSend: spec json.md, "send, deliver, queued, ack".
func TestSend(t *testing.T) {
	playAll(t, []scene{
		{"pub, nonce, ct and id appear exactly when they were there, as they were written", nil, `
			alice registers
			bob registers
			alice > {"t":"send","to":"bob","pub":"p","nonce":"n","ct":"c","id":"m1"}
			bob < {"t":"deliver","from":"alice","pub":"p","nonce":"n","ct":"c","id":"m1"}
			alice > {"id":"m1","ct":"c","nonce":"n","pub":"p","to":"bob","t":"send","x":"y"}
			bob < {"t":"deliver","from":"alice","pub":"p","nonce":"n","ct":"c","id":"m1"}
			alice > {"t":"send","to":"bob"}
			bob < {"t":"deliver","from":"alice"}
			alice > {"t":"send","to":"bob","pub":"","nonce":"","ct":"","id":""}
			bob < {"t":"deliver","from":"alice","pub":"","nonce":"","ct":"","id":""}
			alice > {"t":"send","to":"bob","pub":null,"nonce":null,"ct":null,"id":null}
			bob < {"t":"deliver","from":"alice"}
			alice > { "t" : "send" , "to" : "bob" , "ct" : "\u00e9\ud834\udd1e𝄞\/\u0000" }
			bob < {"t":"deliver","from":"alice","ct":"\u00e9\ud834\udd1e𝄞\/\u0000"}
			alice > {"t":"send","to":"b\u006fb","pub":"k"}
			bob < {"t":"deliver","from":"alice","pub":"k"}`},
		{"to oneself", nil, `
			alice registers
			alice > {"t":"send","to":"alice","ct":"c"}
			alice < {"t":"deliver","from":"alice","ct":"c"}`},
		{"fields of a wrong type", nil, `
			alice registers
			bob registers
			alice > {"t":"send"}
			alice < {"t":"error","msg":"invalid field: to"}
			alice > {"t":"send","to":null}
			alice < {"t":"error","msg":"invalid field: to"}
			alice > {"t":"send","to":["bob"]}
			alice < {"t":"error","msg":"invalid field: to"}
			alice > {"t":"send","to":"bob","pub":1}
			alice < {"t":"error","msg":"invalid field: pub"}
			alice > {"t":"send","to":"bob","nonce":true}
			alice < {"t":"error","msg":"invalid field: nonce"}
			alice > {"t":"send","to":"bob","ct":{"a":"b"}}
			alice < {"t":"error","msg":"invalid field: ct"}
			alice > {"t":"send","to":"bob","id":7}
			alice < {"t":"error","msg":"invalid field: id"}
			alice > {"t":"send","to":"","id":"m"}
			alice < {"t":"error","msg":"invalid addr","id":"m"}
			alice > {"t":"send","to":"b\u0000b"}
			alice < {"t":"error","msg":"invalid addr"}
			alice > {"t":"send","to":"<b*129>"}
			alice < {"t":"error","msg":"invalid addr"}
			alice > {"t":"ack","id":"m1"}
			alice < {"t":"error","msg":"invalid field: to","id":"m1"}
			alice > {"t":"ack","to":"bob"}
			alice < {"t":"error","msg":"invalid field: id"}
			alice > {"t":"ack","to":"bob","id":null}
			alice < {"t":"error","msg":"invalid field: id"}
			alice > {"t":"ack","to":"","id":"m1"}
			alice < {"t":"error","msg":"invalid addr","id":"m1"}`},
		{"not connected: queued", nil, `
			alice registers
			alice > {"t":"send","to":"bob","ct":"c"}
			alice < {"t":"queued","to":"bob"}
			alice > {"t":"send","to":"b\"\u00f6b","ct":"c","id":"m\/1"}
			alice < {"t":"queued","to":"b\"öb","id":"m\/1"}`},
		{"queued when the store takes its time", lateStore, `
			alice registers
			alice > {"t":"send","to":"bob","ct":"1"}
			alice < {"t":"queued","to":"bob"}
			alice > {"t":"ack","to":"bob","id":"m2"}
			alice > {"t":"send","to":"bob","ct":"3","id":"m\/3"}
			alice < {"t":"queued","to":"bob","id":"m\/3"}
			bob > {"t":"register","addr":"bob"}
			bob < {"t":"deliver","from":"alice","ct":"1"}
			bob < {"t":"ack","id":"m2","from":"alice"}
			bob < {"t":"deliver","from":"alice","ct":"3","id":"m\/3"}
			bob < {"t":"registered","addr":"bob","queued":3}`},
		{"the store is full", fullStore, `
			alice registers
			alice > {"t":"send","to":"bob","ct":"<c*1000>","id":"m1"}
			alice < {"t":"error","msg":"storage full","id":"m1"}
			alice > {"t":"send","to":"bob","ct":"<c*1000>"}
			alice < {"t":"error","msg":"storage full"}
			# nothing is said of an ack
			alice > {"t":"ack","to":"bob","id":"<m*1000>"}
			alice silent`},
		{"the store is full, and says so late", func(r *rig) { fullStore(r); lateStore(r) }, `
			alice registers
			alice > {"t":"send","to":"bob","ct":"<c*1000>","id":"m1"}
			alice < {"t":"error","msg":"storage full","id":"m1"}
			alice > {"t":"ack","to":"bob","id":"<m*1000>"}
			alice silent`},
		{"ack, live and stored, is never answered", nil, `
			alice registers
			bob registers
			bob > {"t":"ack","to":"alice","id":"m1"}
			alice < {"t":"ack","id":"m1","from":"bob"}
			bob > {"t":"ack","to":"alice","id":"\u006d1","pub":"x"}
			alice < {"t":"ack","id":"\u006d1","from":"bob"}
			bob > {"t":"ack","to":"carol","id":"m1"}
			bob silent
			carol > {"t":"register","addr":"carol"}
			carol < {"t":"ack","id":"m1","from":"bob"}
			carol < {"t":"registered","addr":"carol","queued":1}`},
		{"a message waits so long", func(r *rig) {
			r.server.Limits.Dialects = map[string]relay.DialectLimits{"json": {InboxTTL: time.Hour}}
		}, `
			alice registers
			alice > {"t":"send","to":"bob","ct":"1"}
			alice < {"t":"queued","to":"bob"}
			wait 1m
			alice > {"t":"send","to":"bob","ct":"2"}
			alice < {"t":"queued","to":"bob"}
			wait 59m
			bob > {"t":"register","addr":"bob"}
			bob < {"t":"deliver","from":"alice","ct":"2"}
			bob < {"t":"registered","addr":"bob","queued":1}`},
		{"what the policy refuses", func(r *rig) {
			r.server.Policy.Send = func(_ context.Context, i relay.SendInfo) error {
				return map[string]error{
					"bob":  &relay.Refusal{Code: relay.CodeDenied},
					"rate": &relay.Refusal{Code: relay.CodeRateLimited},
					"end":  &relay.Refusal{Code: relay.CodeDenied, Reason: "go away", Close: 1008},
				}[i.To.Name]
			}
		}, `
			alice registers
			alice > {"t":"send","to":"bob","id":"m1"}
			alice < {"t":"error","msg":"denied","id":"m1"}
			alice > {"t":"send","to":"rate","id":"m1"}
			alice < {"t":"error","msg":"rate limit exceeded","id":"m1"}`},
	})
}

func lateStore(r *rig) { r.server.Inbox = &late{r.server.Inbox} }

func fullStore(r *rig) { r.server.Inbox = inbox.NewMemory(&inbox.MemoryOptions{MaxBytes: 500}) }

// late is a store that answers a while after it has stored.
type late struct{ inbox.Store }

func (s *late) Put(ctx context.Context, e *inbox.Entry, q inbox.Quota, done func(inbox.Result)) {
	s.Store.Put(ctx, e, q, func(r inbox.Result) { time.AfterFunc(time.Millisecond, func() { done(r) }) })
}

// TestInboxHolds500: past 500 messages the oldest go first, counted (case ST-09).
func TestInboxHolds500(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		alice := r.as("alice")
		for i := range 510 {
			time.Sleep(60 * time.Millisecond)
			alice.say(fmt.Sprintf(`{"t":"send","to":"bob","id":"%d"}`, i))
			require.Equal(t, fmt.Sprintf(`{"t":"queued","to":"bob","id":"%d"}`, i), alice.hear())
		}
		bob := r.peer("bob")
		bob.say(`{"t":"register","addr":"bob"}`)
		for i := 10; i < 510; i++ {
			require.Equal(t, fmt.Sprintf(`{"t":"deliver","from":"alice","id":"%d"}`, i), bob.hear())
		}
		require.Equal(t, `{"t":"registered","addr":"bob","queued":500}`, bob.hear())
		bob.silent(time.Second)
		require.EqualValues(t, 10, r.balance().Dropped)
	})
}

// TestSlowReader: who is too slow gets it later, in order, and the sender hears
// that it is queued.
func TestSlowReader(t *testing.T) {
	bubble(t, func(r *rig) {
		r.server.Limits = relay.MaxLimits()
		r.server.Limits.OutboxMessages = 4
	}, func(t *testing.T, r *rig) {
		alice, bob := r.as("alice"), r.as("bob")
		const n = 100
		for i := range n {
			alice.say(fmt.Sprintf(`{"t":"send","to":"bob","id":"%d"}`, i))
		}
		queued := 0
		for {
			if _, ok := alice.next(time.Second); !ok {
				break
			}
			queued++
		}
		require.Greater(t, queued, n/2)
		for i := range n {
			require.Equal(t, fmt.Sprintf(`{"t":"deliver","from":"alice","id":"%d"}`, i), bob.hear())
		}
		bob.silent(time.Second)
		require.Zero(t, r.balance().Dropped)
	})
}

// TestMatch: spec json.md, "find_match" (cases MA-01 to MA-03).
func TestMatch(t *testing.T) {
	playAll(t, []scene{
		{"first come, first served, per game", nil, `
			alice registers
			bob registers
			carol registers
			dave registers
			alice > {"t":"find_match","game":"pong"}
			alice < {"t":"waiting","game":"pong"}
			bob > {"t":"find_match","game":"chess"}
			bob < {"t":"waiting","game":"chess"}
			carol > {"t":"find_match","game":"pong"}
			carol < {"t":"matched","game":"pong","peer":"alice"}
			alice < {"t":"matched","game":"pong","peer":"carol"}
			dave > {"t":"find_match","game":"pong"}
			dave < {"t":"waiting","game":"pong"}
			alice > {"t":"find_match","game":"ch\u0065ss"}
			alice < {"t":"matched","game":"chess","peer":"bob"}
			bob < {"t":"matched","game":"chess","peer":"alice"}`},
		{"asking again keeps the place, and never pairs with oneself", nil, `
			alice registers
			bob registers
			alice > {"t":"find_match","game":"pong"}
			alice < {"t":"waiting","game":"pong"}
			alice > {"t":"find_match","game":"pong"}
			alice < {"t":"waiting","game":"pong"}
			bob > {"t":"find_match","game":"pong"}
			bob < {"t":"matched","game":"pong","peer":"alice"}
			alice < {"t":"matched","game":"pong","peer":"bob"}`},
		{"disconnecting leaves the queue", nil, `
			alice registers
			bob registers
			carol registers
			alice > {"t":"find_match","game":"pong"}
			alice < {"t":"waiting","game":"pong"}
			alice closes
			bob > {"t":"find_match","game":"pong"}
			bob < {"t":"waiting","game":"pong"}
			carol > {"t":"find_match","game":"pong"}
			carol < {"t":"matched","game":"pong","peer":"bob"}
			bob < {"t":"matched","game":"pong","peer":"carol"}`},
		{"cancel_match", nil, `
			alice registers
			bob registers
			alice > {"t":"find_match","game":"pong"}
			alice < {"t":"waiting","game":"pong"}
			alice > {"t":"cancel_match","game":"pong"}
			alice < {"t":"match_cancelled","game":"pong"}
			bob > {"t":"find_match","game":"pong"}
			bob < {"t":"waiting","game":"pong"}
			alice > {"t":"cancel_match","game":"chess"}
			alice < {"t":"match_cancelled","game":"chess"}`},
		{"invalid games", nil, `
			alice registers
			alice > {"t":"find_match"}
			alice < {"t":"error","msg":"invalid field: game"}
			alice > {"t":"find_match","game":""}
			alice < {"t":"error","msg":"invalid game"}
			alice > {"t":"find_match","game":"a\tb"}
			alice < {"t":"error","msg":"invalid game"}
			alice > {"t":"find_match","game":"<g*129>"}
			alice < {"t":"error","msg":"invalid game"}
			alice > {"t":"find_match","game":"<g*128>"}
			alice < {"t":"waiting","game":"<g*128>"}
			alice > {"t":"cancel_match","game":null}
			alice < {"t":"error","msg":"invalid field: game"}
			alice > {"t":"cancel_match","game":""}
			alice < {"t":"error","msg":"invalid game"}`},
		{"ten games at a time", nil, `
			alice registers
			` + numbered(10, `alice > {"t":"find_match","game":"g%d"}
			alice < {"t":"waiting","game":"g%d"}`) + `
			alice > {"t":"find_match","game":"more","id":"m"}
			alice < {"t":"error","msg":"too many games","id":"m"}
			alice > {"t":"find_match","game":"g3"}
			alice < {"t":"waiting","game":"g3"}
			alice > {"t":"cancel_match","game":"g3"}
			alice < {"t":"match_cancelled","game":"g3"}
			alice > {"t":"find_match","game":"more"}
			alice < {"t":"waiting","game":"more"}`},
	})
}

// numbered returns lines n times, with the numbers from 0 for each %d.
func numbered(n int, lines string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.ReplaceAll(lines, "%d", strconv.Itoa(i)) + "\n")
	}
	return b.String()
}

// TestRooms: spec json.md, "rooms" (case RM-02).
func TestRooms(t *testing.T) {
	playAll(t, []scene{
		{"join, send, leave", nil, `
			alice registers
			bob registers
			carol registers
			alice > {"t":"join_room","room":"r\u00f6m"}
			alice < {"t":"joined_room","room":"röm","members":1}
			bob > {"t":"join_room","room":"röm"}
			bob < {"t":"joined_room","room":"röm","members":2}
			bob > {"t":"join_room","room":"röm"}
			bob < {"t":"joined_room","room":"röm","members":2}
			alice > {"t":"room_send","room":"röm","ct":"a\/b"}
			bob < {"t":"room_deliver","room":"röm","from":"alice","ct":"a\/b"}
			alice silent
			carol > {"t":"room_send","room":"röm","ct":"x","id":"m1"}
			carol < {"t":"error","msg":"not in room","id":"m1"}
			bob > {"t":"leave_room","room":"röm"}
			bob < {"t":"left_room","room":"röm"}
			alice > {"t":"room_send","room":"röm","ct":""}
			bob > {"t":"room_send","room":"röm","ct":"x"}
			bob < {"t":"error","msg":"not in room"}
			bob > {"t":"leave_room","room":"röm"}
			bob < {"t":"left_room","room":"röm"}`},
		{"disconnecting leaves, and an empty room is gone", nil, `
			alice registers
			bob registers
			alice > {"t":"join_room","room":"r"}
			alice < {"t":"joined_room","room":"r","members":1}
			bob > {"t":"join_room","room":"r"}
			bob < {"t":"joined_room","room":"r","members":2}
			alice closes
			bob > {"t":"join_room","room":"r"}
			bob < {"t":"joined_room","room":"r","members":1}
			bob > {"t":"leave_room","room":"r"}
			bob < {"t":"left_room","room":"r"}
			bob > {"t":"join_room","room":"r"}
			bob < {"t":"joined_room","room":"r","members":1}`},
		{"invalid rooms and fields", nil, `
			alice registers
			alice > {"t":"join_room"}
			alice < {"t":"error","msg":"invalid field: room"}
			alice > {"t":"join_room","room":1}
			alice < {"t":"error","msg":"invalid field: room"}
			alice > {"t":"join_room","room":""}
			alice < {"t":"error","msg":"invalid room"}
			alice > {"t":"join_room","room":"a\u0000"}
			alice < {"t":"error","msg":"invalid room"}
			alice > {"t":"join_room","room":"<r*129>"}
			alice < {"t":"error","msg":"invalid room"}
			alice > {"t":"join_room","room":"<r*128>"}
			alice < {"t":"joined_room","room":"<r*128>","members":1}
			alice > {"t":"leave_room","room":""}
			alice < {"t":"error","msg":"invalid room"}
			alice > {"t":"leave_room"}
			alice < {"t":"error","msg":"invalid field: room"}
			alice > {"t":"room_send","ct":"x"}
			alice < {"t":"error","msg":"invalid field: room"}
			alice > {"t":"room_send","room":"","ct":"x"}
			alice < {"t":"error","msg":"invalid room"}
			alice > {"t":"room_send","room":"<r*128>"}
			alice < {"t":"error","msg":"invalid field: ct"}
			alice > {"t":"room_send","room":"<r*128>","ct":null}
			alice < {"t":"error","msg":"invalid field: ct"}`},
		{"50 rooms a connection", nil, `
			alice registers
			` + numbered(50, `alice > {"t":"join_room","room":"r%d"}
			alice < {"t":"joined_room","room":"r%d","members":1}`) + `
			alice > {"t":"join_room","room":"more"}
			alice < {"t":"error","msg":"too many rooms"}
			alice > {"t":"join_room","room":"r7"}
			alice < {"t":"joined_room","room":"r7","members":1}
			alice > {"t":"leave_room","room":"r7"}
			alice < {"t":"left_room","room":"r7"}
			alice > {"t":"join_room","room":"more"}
			alice < {"t":"joined_room","room":"more","members":1}`},
		{"room full", func(r *rig) {
			r.server.Limits.Dialects = map[string]relay.DialectLimits{"json": {GroupMembers: 2}}
		}, `
			alice registers
			bob registers
			carol registers
			alice > {"t":"join_room","room":"r"}
			alice < {"t":"joined_room","room":"r","members":1}
			bob > {"t":"join_room","room":"r"}
			bob < {"t":"joined_room","room":"r","members":2}
			carol > {"t":"join_room","room":"r"}
			carol < {"t":"error","msg":"room full"}
			bob > {"t":"leave_room","room":"r"}
			bob < {"t":"left_room","room":"r"}
			carol > {"t":"join_room","room":"r"}
			carol < {"t":"joined_room","room":"r","members":2}`},
		{"what the policy refuses", func(r *rig) {
			r.server.Policy.Join = func(context.Context, relay.JoinInfo) error {
				return &relay.Refusal{Code: relay.CodeDenied, Reason: "members only"}
			}
		}, `
			alice registers
			alice > {"t":"join_room","room":"r"}
			alice < {"t":"error","msg":"members only"}`},
	})
}
