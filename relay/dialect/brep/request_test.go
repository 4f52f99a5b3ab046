package brep

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
)

func TestRequest(t *testing.T) {
	tooLong := append([]byte(`{"req":1,"t":"`), append(bytes.Repeat([]byte("a"), frame.MaxRequest), `"}`...)...)
	unknown := `{"req":7,"ok":false,"code":"unknown-verb","msg":"unknown-verb"}`
	for _, c := range []struct {
		name, payload, response string
		err                     frame.Code
	}{
		{"auth", `{"t":"auth","req":7,"token":"x"}`, `{"t":"auth","req":7,"ok":true}`, 0},
		{"unknown fields, in any order", ` {"x":[{}],"token":"","req":7,"t":"\u0061uth"} `, `{"t":"auth","req":7,"ok":true}`, 0},
		{"auth without a token", `{"t":"auth","req":7}`, `{"req":7,"ok":false,"code":"malformed","msg":"invalid field: token"}`, 0},
		{"no verb", `{"req":7}`, unknown, 0},
		{"verb in capitals", `{"t":"AUTH","token":"x","req":7}`, unknown, 0},
		{"field in capitals", `{"T":"auth","token":"x","req":7}`, unknown, 0},
		{"verb of no type", `{"t":7,"req":7}`, unknown, 0},
		{"attach", `{"t":"attach","req":7}`, unknown, 0},
		{"what has a frame of its own", `{"t":"send","to":"bob","req":7}`, unknown, 0},
		{"largest number", `{"req":9223372036854775807}`, `{"req":9223372036854775807,"ok":false,"code":"unknown-verb","msg":"unknown-verb"}`, 0},
		{"no number", `{"t":"auth"}`, "", frame.CodeMalformed},
		{"zero", `{"req":0}`, "", frame.CodeMalformed},
		{"negative", `{"req":-1}`, "", frame.CodeMalformed},
		{"fraction", `{"req":1.5}`, "", frame.CodeMalformed},
		{"exponent", `{"req":1e3}`, "", frame.CodeMalformed},
		{"too large a number", `{"req":9223372036854775808}`, "", frame.CodeMalformed},
		{"text", `{"req":"1"}`, "", frame.CodeMalformed},
		{"null", `{"req":null}`, "", frame.CodeMalformed},
		{"array", `[]`, "", frame.CodeMalformed},
		{"two", `{"req":1}{"req":2}`, "", frame.CodeMalformed},
		{"a name twice", `{"req":1,"t":"auth","t":"erase"}`, "", frame.CodeMalformed},
		{"no UTF-8", "{\"req\":1,\"t\":\"\xff\"}", "", frame.CodeMalformed},
		{"nothing", ``, "", frame.CodeMalformed},
		{"too long", string(tooLong), "", frame.CodeTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				p := r.login(identity(t, 1), formExtended)
				f := withID(p.frame(frame.TypeRequest, []byte(c.payload)), 9, 0)
				for range 2 { // it is no message: the second one is no repeat
					p.send(f)
					if c.err != 0 {
						e := p.error()
						require.Equal(t, c.err, e.Code)
						require.Equal(t, f.ID, e.ID)
						continue
					}
					require.Equal(t, c.response, p.response())
				}
			})
		})
	}
}

// TestOpenRequests: several may be open, and each is answered with its number.
func TestOpenRequests(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		p := r.login(identity(t, 1), formExtended)
		for _, n := range []string{"5", "3", "5"} {
			p.send(p.frame(frame.TypeRequest, []byte(`{"t":"leave_room","room":"r","req":`+n+`}`)))
		}
		for _, n := range []string{"5", "3", "5"} {
			require.Equal(t, `{"t":"left_room","room":"r","req":`+n+`,"ok":true}`, p.response())
		}
	})
}

// TestAuth: a token given in the session is asked about, and its refusal is no end.
func TestAuth(t *testing.T) {
	bubble(t, func(r *rig) {
		r.server.Policy.Claim = func(_ context.Context, c relay.ClaimInfo) (relay.Grant, error) {
			switch c.Token {
			case "": // at the login
				return relay.Grant{Expires: time.Now().Add(time.Minute)}, nil
			case "good":
				return relay.Grant{}, nil
			}
			return relay.Grant{}, &relay.Refusal{Code: relay.CodeNotAuthenticated, Reason: "who are you"}
		}
	}, func(t *testing.T, r *rig) {
		p := r.login(identity(t, 1), formExtended)
		require.Equal(t, `{"req":1,"ok":false,"code":"not-authenticated","msg":"who are you"}`, p.ask(`{"t":"auth","token":"bad","req":1}`))
		require.Equal(t, `{"t":"auth","req":2,"ok":true}`, p.ask(`{"t":"auth","token":"good","req":2}`))
		time.Sleep(time.Hour)
		p.nothing()
		p = r.login(identity(t, 2), formExtended)
		time.Sleep(time.Hour)
		require.Equal(t, frame.CodeNotAuthenticated, p.error().Code)
	})
}

func TestCapabilities(t *testing.T) {
	bubble(t, func(r *rig) {
		r.Version, r.Transports, r.Durable = "1.2", []string{"ws", "tcp"}, true
	}, func(t *testing.T, r *rig) {
		p := r.login(identity(t, 1), formExtended)
		var got struct {
			T string
			frame.Capabilities
			Req int
			OK  bool
		}
		require.NoError(t, json.Unmarshal([]byte(p.ask(`{"t":"capabilities","req":3}`)), &got))
		require.Equal(t, "capabilities", got.T)
		require.Equal(t, 3, got.Req)
		require.True(t, got.OK)
		require.Equal(t, "1.2", got.Version)
		require.Equal(t, "brep", got.Dialect)
		require.Equal(t, []string{"ws", "tcp"}, got.Transports)
		require.Equal(t, "normal", got.LoadTier)
		require.Contains(t, got.Features, "durable")
		require.Equal(t, frame.CapabilitiesLimits{
			MessageBytes: 4 << 20, MessagesPerSecond: 200, MessageBurst: 400, SourceConnections: 1000,
			NameBytes: 128, TopicBytes: 512, TopicLevels: 32, Subscriptions: 100, Rooms: 50, Matches: 10,
			RoomMembers: 10_000, InboxMessages: 10_000, InboxSeconds: 7 * 24 * 3600,
		}, got.Limits)
	})
	bubble(t, func(r *rig) { r.server.Limits = relay.MaxLimits() }, func(t *testing.T, r *rig) {
		require.NotContains(t, r.login(identity(t, 1), formExtended).ask(`{"t":"capabilities","req":3}`), "-", "zero stands for none")
	})
}
