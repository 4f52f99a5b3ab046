package jsonmsg

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/relay"
)

// TestTopics: spec json.md, "topics" (cases TO-03, TO-04, TO-06 to TO-09, TO-12,
// FR-26).
func TestTopics(t *testing.T) {
	playAll(t, []scene{
		{"to each matching connection once, the publisher included", nil, `
			alice registers
			bob registers
			alice > {"t":"subscribe","topic":"home/+/temp"}
			alice < {"t":"subscribed","topic":"home/+/temp"}
			alice > {"t":"subscribe","topic":"home/#"}
			alice < {"t":"subscribed","topic":"home/#"}
			bob > {"t":"subscribe","topic":"#"}
			bob < {"t":"subscribed","topic":"#"}
			bob > {"t":"publish","topic":"home/kitchen/temp","ct":"a\/b"}
			alice < {"t":"message","topic":"home/kitchen/temp","from":"bob","ct":"a\/b","retained":false}
			bob < {"t":"message","topic":"home/kitchen/temp","from":"bob","ct":"a\/b","retained":false}
			alice > {"t":"unsubscribe","topic":"home/#"}
			alice < {"t":"unsubscribed","topic":"home/#"}
			alice > {"t":"unsubscribe","topic":"home/#"}
			alice < {"t":"unsubscribed","topic":"home/#"}
			bob > {"t":"publish","topic":"home","ct":"","retain":false}
			bob < {"t":"message","topic":"home","from":"bob","ct":"","retained":false}
			alice > {"t":"publish","topic":"$x\t\"y","ct":"1"}
			bob < {"t":"message","topic":"$x\u0009\"y","from":"alice","ct":"1","retained":false}`},
		{"retained values: replay, replace, clear", nil, `
			alice registers
			bob registers
			alice > {"t":"publish","topic":"b","ct":"1","retain":true}
			alice > {"t":"publish","topic":"a/x","ct":"2","retain":true}
			alice > {"t":"publish","topic":"a","ct":"3","retain":true}
			alice > {"t":"publish","topic":"a","ct":"","retain":false}
			bob > {"t":"subscribe","topic":"#"}
			bob < {"t":"subscribed","topic":"#"}
			bob < {"t":"message","topic":"a","from":"alice","ct":"3","retained":true}
			bob < {"t":"message","topic":"a/x","from":"alice","ct":"2","retained":true}
			bob < {"t":"message","topic":"b","from":"alice","ct":"1","retained":true}
			bob > {"t":"publish","topic":"a","ct":"4","retain":true}
			bob < {"t":"message","topic":"a","from":"bob","ct":"4","retained":false}
			alice > {"t":"publish","topic":"b","ct":"","retain":true}
			bob < {"t":"message","topic":"b","from":"alice","ct":"","retained":false}
			bob > {"t":"subscribe","topic":"#"}
			bob < {"t":"subscribed","topic":"#"}
			bob < {"t":"message","topic":"a","from":"bob","ct":"4","retained":true}
			bob < {"t":"message","topic":"a/x","from":"alice","ct":"2","retained":true}`},
		{"nothing is queued for absent subscribers", nil, `
			alice registers
			bob registers
			bob > {"t":"subscribe","topic":"a"}
			bob < {"t":"subscribed","topic":"a"}
			bob closes
			alice > {"t":"publish","topic":"a","ct":"1"}
			bob registers
			bob > {"t":"subscribe","topic":"a"}
			bob < {"t":"subscribed","topic":"a"}`},
		{"invalid fields", nil, `
			alice registers
			alice > {"t":"subscribe"}
			alice < {"t":"error","msg":"invalid field: topic"}
			alice > {"t":"subscribe","topic":1}
			alice < {"t":"error","msg":"invalid field: topic"}
			alice > {"t":"unsubscribe","topic":null}
			alice < {"t":"error","msg":"invalid field: topic"}
			alice > {"t":"publish","ct":"x"}
			alice < {"t":"error","msg":"invalid field: topic"}
			alice > {"t":"publish","topic":"a"}
			alice < {"t":"error","msg":"invalid field: ct"}
			alice > {"t":"publish","topic":"a","ct":null}
			alice < {"t":"error","msg":"invalid field: ct"}
			alice > {"t":"publish","topic":"a","ct":"x","retain":"true"}
			alice < {"t":"error","msg":"invalid field: retain"}
			alice > {"t":"publish","topic":"a","ct":"x","retain":1}
			alice < {"t":"error","msg":"invalid field: retain"}
			alice > {"t":"publish","topic":"a","ct":"x","retain":null,"id":"m"}
			alice < {"t":"error","msg":"invalid field: retain","id":"m"}`},
		{"100 subscriptions a connection", nil, `
			alice registers
			` + numbered(100, `alice > {"t":"subscribe","topic":"t%d"}
			alice < {"t":"subscribed","topic":"t%d"}`) + `
			alice > {"t":"subscribe","topic":"more"}
			alice < {"t":"error","msg":"too many subscriptions"}
			alice > {"t":"subscribe","topic":"t9"}
			alice < {"t":"subscribed","topic":"t9"}
			alice > {"t":"unsubscribe","topic":"t9"}
			alice < {"t":"unsubscribed","topic":"t9"}
			alice > {"t":"subscribe","topic":"more"}
			alice < {"t":"subscribed","topic":"more"}`},
		{"topics of 512 bytes and 32 levels", nil, `
			alice registers
			alice > {"t":"subscribe","topic":"<x*512>"}
			alice < {"t":"subscribed","topic":"<x*512>"}
			alice > {"t":"subscribe","topic":"<x*513>"}
			alice < {"t":"error","msg":"invalid topic filter"}
			alice > {"t":"subscribe","topic":"<x/*31>#"}
			alice < {"t":"subscribed","topic":"<x/*31>#"}
			alice > {"t":"subscribe","topic":"<x/*32>#"}
			alice < {"t":"error","msg":"invalid topic filter"}
			alice > {"t":"publish","topic":"<x*512>","ct":"1"}
			alice < {"t":"message","topic":"<x*512>","from":"alice","ct":"1","retained":false}
			alice > {"t":"publish","topic":"<x*513>","ct":"1"}
			alice < {"t":"error","msg":"invalid topic"}
			alice > {"t":"publish","topic":"<x/*31>y","ct":"1"}
			alice < {"t":"message","topic":"<x/*31>y","from":"alice","ct":"1","retained":false}
			alice > {"t":"publish","topic":"<x/*32>y","ct":"1"}
			alice < {"t":"error","msg":"invalid topic"}`},
		{"the retained store is full", func(r *rig) { r.server.Limits.RetainedValues = 4 }, `
			alice registers
			alice > {"t":"publish","topic":"a","ct":"1","retain":true}
			alice > {"t":"publish","topic":"b","ct":"1","retain":true,"id":"m"}
			alice < {"t":"error","msg":"retained store full","id":"m"}
			alice > {"t":"publish","topic":"a","ct":"2","retain":true}`},
	})
}

// TestTopicVectors: testdata/topics.json, as a client sees it.
func TestTopicVectors(t *testing.T) {
	var file struct {
		Matches []struct {
			Filter, Topic string
			Match         bool
		}
		Filters []struct {
			Filter string
			Valid  bool
		}
		Topics []struct {
			Topic string
			Valid bool
		}
	}
	readVectors(t, "topics.json", &file)
	require.NotEmpty(t, file.Matches)
	require.NotEmpty(t, file.Filters)
	require.NotEmpty(t, file.Topics)
	bubble(t, func(r *rig) { r.server.Limits = relay.MaxLimits() }, func(t *testing.T, r *rig) {
		alice := r.as("alice")
		ask := func(verb, topic, rest string) string {
			alice.say(fmt.Sprintf(`{"t":%q,"topic":%s%s}`, verb, quote(t, topic), rest))
			answer, _ := alice.next(time.Second)
			return answer
		}
		is := func(answer, kind string) bool { return strings.HasPrefix(answer, `{"t":"`+kind+`"`) }
		for _, c := range file.Matches {
			require.True(t, is(ask("subscribe", c.Filter, ""), "subscribed"), c.Filter)
			require.Equal(t, c.Match, is(ask("publish", c.Topic, `,"ct":"x"`), "message"), "%+v", c)
			require.True(t, is(ask("unsubscribe", c.Filter, ""), "unsubscribed"), c.Filter)
		}
		for _, c := range file.Filters {
			answer := ask("subscribe", c.Filter, "")
			if c.Valid {
				require.True(t, is(answer, "subscribed"), c.Filter)
				ask("unsubscribe", c.Filter, "")
			} else {
				require.Equal(t, `{"t":"error","msg":"invalid topic filter"}`, answer, c.Filter)
			}
		}
		for _, c := range file.Topics {
			answer := ask("publish", c.Topic, `,"ct":"x"`)
			if c.Valid {
				require.Empty(t, answer, c.Topic)
			} else {
				require.Equal(t, `{"t":"error","msg":"invalid topic"}`, answer, c.Topic)
			}
		}
	})
}

func quote(t *testing.T, s string) string {
	b, err := json.Marshal(s)
	require.NoError(t, err)
	return string(b)
}
