package jsonmsg

import (
	"context"
	"testing"

	"github.com/sotto-relay/sotto/relay"
)

// TestEveryMessage: spec json.md, "Every message" (cases FR-19 to FR-28, HS-03).
func TestEveryMessage(t *testing.T) {
	playAll(t, []scene{
		{"unknown fields are ignored, names match exactly", nil, `
			alice > {"T":"x","t":"register","addr":"alice","Addr":"eve","TO":1,"x":{"y":[1,{"z":null}]}}
			alice < {"t":"registered","addr":"alice","queued":0}
			alice > {"t":"send","TO":"alice","To":"alice","ct":"x"}
			alice < {"t":"error","msg":"invalid field: to"}
			alice > {"t":"send","TO":"eve","to":"alice","ct":"x"}
			alice < {"t":"deliver","from":"alice","ct":"x"}`},
		{"names match after unescaping", nil, `
			alice > {"\u0074":"\u0072egister","\u0061ddr":"\u0061lice"}
			alice < {"t":"registered","addr":"alice","queued":0}`},
		{"invalid JSON, and the connection stays", nil, `
			alice > []
			alice < {"t":"error","msg":"invalid JSON"}
			alice > "register"
			alice < {"t":"error","msg":"invalid JSON"}
			alice > null
			alice < {"t":"error","msg":"invalid JSON"}
			alice > 1
			alice < {"t":"error","msg":"invalid JSON"}
			alice > {"t":"register","addr":"alice"
			alice < {"t":"error","msg":"invalid JSON"}
			alice > {"t":"register","addr":"alice"}{}
			alice < {"t":"error","msg":"invalid JSON"}
			alice > {"t":"register","addr":"alice"} x
			alice < {"t":"error","msg":"invalid JSON"}
			alice > {"t":"register","addr":"alice","addr":"eve"}
			alice < {"t":"error","msg":"invalid JSON"}
			alice > {"t":"register","addr":"alice","\u0061ddr":"eve"}
			alice < {"t":"error","msg":"invalid JSON"}
			alice > {"t":"register","addr":"alice","x":{"y":1,"y":2}}
			alice < {"t":"error","msg":"invalid JSON"}
			alice > {"t":"register","addr":"\ud800"}
			alice < {"t":"error","msg":"invalid JSON"}
			alice > {"t":"register","addr":"` + "\xff" + `"}
			alice < {"t":"error","msg":"invalid JSON"}
			alice > ` + "\ufeff" + `{"t":"register","addr":"alice"}
			alice < {"t":"error","msg":"invalid JSON"}
			alice > {"t":"register","addr":"alice","id":"m1"
			alice < {"t":"error","msg":"invalid JSON"}
			alice registers`},
		{"unknown type", nil, `
			alice registers
			alice > {}
			alice < {"t":"error","msg":"unknown type"}
			alice > {"t":"fly"}
			alice < {"t":"error","msg":"unknown type"}
			alice > {"t":"SEND"}
			alice < {"t":"error","msg":"unknown type"}
			alice > {"t":1,"id":"m1"}
			alice < {"t":"error","msg":"unknown type","id":"m1"}
			alice > {"t":null}
			alice < {"t":"error","msg":"unknown type"}
			alice > {"t":["send"]}
			alice < {"t":"error","msg":"unknown type"}
			alice > {"t":""}
			alice < {"t":"error","msg":"unknown type"}
			alice > {"t":"deliver","to":"alice"}
			alice < {"t":"error","msg":"unknown type"}`},
		{"an error repeats an id that is a string", nil, `
			alice > {"t":"send","to":"bob","id":"m\u00fc\/1"}
			alice < {"t":"error","msg":"not registered","id":"m\u00fc\/1"}
			alice > {"t":"send","to":"bob","id":5}
			alice < {"t":"error","msg":"not registered"}
			alice > {"t":"register","id":""}
			alice < {"t":"error","msg":"addr or pubkey required","id":""}
			alice registers
			alice > {"t":"find_match","game":"","id":"g"}
			alice < {"t":"error","msg":"invalid game","id":"g"}
			alice > {"t":"join_room","id":"r"}
			alice < {"t":"error","msg":"invalid field: room","id":"r"}`},
		{"also one that ends the connection", func(r *rig) {
			r.server.Policy.Join = func(context.Context, relay.JoinInfo) error {
				return &relay.Refusal{Code: relay.CodeDenied, Reason: "go away", Close: 1008}
			}
		}, `
			alice registers
			alice > {"t":"join_room","room":"r","id":"m\/1"}
			alice < {"t":"error","msg":"go away","id":"m\/1"}
			alice closed 1008`},
		{"a binary message on a medium that tells", nil, `
			alice binary {"t":"register","addr":"alice"}
			alice < {"t":"error","msg":"binary message"}
			alice registers`},
		{"everything but register and capabilities needs a registration", nil, `
			alice > {"t":"send","to":"bob","ct":"x"}
			alice < {"t":"error","msg":"not registered"}
			alice > {"t":"ack","to":"bob","id":"x"}
			alice < {"t":"error","msg":"not registered","id":"x"}
			alice > {"t":"find_match","game":"pong"}
			alice < {"t":"error","msg":"not registered"}
			alice > {"t":"cancel_match","game":"pong"}
			alice < {"t":"error","msg":"not registered"}
			alice > {"t":"join_room","room":"r"}
			alice < {"t":"error","msg":"not registered"}
			alice > {"t":"leave_room","room":"r"}
			alice < {"t":"error","msg":"not registered"}
			alice > {"t":"room_send","room":"r","ct":"x"}
			alice < {"t":"error","msg":"not registered"}
			alice > {"t":"subscribe","topic":"a"}
			alice < {"t":"error","msg":"not registered"}
			alice > {"t":"unsubscribe","topic":"a"}
			alice < {"t":"error","msg":"not registered"}
			alice > {"t":"publish","topic":"a","ct":"x","retain":true}
			alice < {"t":"error","msg":"not registered"}
			alice > {"t":"proof","proof":"x"}
			alice < {"t":"error","msg":"not registered"}
			# and has no effect later
			alice registers
			bob registers
			alice > {"t":"room_send","room":"r","ct":"x"}
			alice < {"t":"error","msg":"not in room"}
			bob > {"t":"find_match","game":"pong"}
			bob < {"t":"waiting","game":"pong"}
			bob > {"t":"subscribe","topic":"a"}
			bob < {"t":"subscribed","topic":"a"}`},
		{"a message of 65,536 bytes", nil, `
			alice registers
			alice > {"t":"send","to":"alice","ct":"<x*65503>"}
			alice < {"t":"deliver","from":"alice","ct":"<x*65503>"}`},
		{"one byte more is answered, then closed", nil, `
			alice registers
			bob registers
			alice > {"t":"send","to":"bob","ct":"<x*65506>"}
			alice < {"t":"error","msg":"message too large"}
			alice closed 1009`},
		{"much more likewise, and before the registration", nil, `
			alice > {"t":"send","to":"bob","ct":"<x*300000>"}
			alice < {"t":"error","msg":"message too large"}
			alice closed 1009`},
		{"20 messages at once, 20 a second", nil, `
			alice registers
			wait 10s
			` + times20(`alice >> {"t":"send","to":"alice"}`) + `
			alice >> {"t":"send","to":"alice","id":"m21"}
			alice >> not even JSON
			` + times20(`alice < {"t":"deliver","from":"alice"}`) + `
			alice < {"t":"error","msg":"rate limit exceeded","id":"m21"}
			alice < {"t":"error","msg":"rate limit exceeded"}
			wait 49ms
			alice >> {"t":"send","to":"alice"}
			alice < {"t":"error","msg":"rate limit exceeded"}
			wait 1ms
			alice >> {"t":"send","to":"alice"}
			alice < {"t":"deliver","from":"alice"}
			# a connection of its own has its own, but a reconnect buys nothing
			bob registers
			alice closes
			again >> {"t":"register","addr":"alice"}
			again < {"t":"registered","addr":"alice","queued":0}
			again >> {"t":"send","to":"alice"}
			again < {"t":"error","msg":"rate limit exceeded"}`},
		{"60 seconds to register", nil, `
			alice > {"t":"capabilities","x":1}
			alice < {"t":"capabilities","version":"","dialect":"json","transports":[],"features":["acks","matchmaking","rooms","topics","retained"],"limits":{"message_bytes":65536,"datagram_bytes":16384,"messages_per_second":20,"message_burst":20,"source_connections":20,"name_bytes":128,"topic_bytes":512,"topic_levels":32,"subscriptions":100,"rooms":50,"matches":10,"room_members":10000,"inbox_messages":500,"inbox_seconds":86400},"load_tier":"normal"}
			wait 59s
			alice > {"t":"send","to":"bob"}
			alice < {"t":"error","msg":"not registered"}
			wait 1s
			alice < {"t":"error","msg":"not registered"}
			alice closed 1013`},
	})
}
