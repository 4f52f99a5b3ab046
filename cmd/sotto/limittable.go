package main

import (
	"slices"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/blind"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/relay/dialect/jsonmsg"
	"github.com/sotto-relay/sotto/relay/dialect/mailbox"
)

// A limit has a name of the specs; at returns a pointer to its value.
type limit struct {
	name, meaning string
	at            func(*limits) any
}

// dialects are those whose limits can be set. Their defaults are their own.
var dialects = [...]relay.Dialect{brep.Dialect{}, jsonmsg.Dialect{}, blind.Dialect{}, mailbox.Dialect{}}

// limitTable has the limits of each dialect, then those of all.
func limitTable() []limit {
	return slices.Concat(brepLimits(), jsonLimits(), blindLimits(), mailboxLimits(), commonLimits())
}

// A column is a limit that several dialects have.
type column struct {
	suffix, meaning string
	at              func(*relay.DialectLimits) any
}

// of makes the limits of a dialect.
func of(dialect string, columns ...column) (l []limit) {
	for _, c := range columns {
		l = append(l, limit{
			name: dialect + "-" + c.suffix, meaning: c.meaning,
			at: func(l *limits) any { return c.at(l.dialects[dialect]) },
		})
	}
	return l
}

// traffic are the columns of what is spoken on a connection.
func traffic() []column {
	return []column{
		{"rate", "messages a second and connection", func(l *relay.DialectLimits) any { return &l.MessageRate }},
		{"burst", "messages at once, beyond the rate", func(l *relay.DialectLimits) any { return &l.MessageBurst }},
		{"byte-rate", "bytes a second and connection", func(l *relay.DialectLimits) any { return &l.ByteRate }},
		{"byte-burst", "bytes at once, beyond the rate", func(l *relay.DialectLimits) any { return &l.ByteBurst }},
		{"connections", "connections of one source at a time", func(l *relay.DialectLimits) any { return &l.SourceConnections }},
		{"connect-rate", "new connections a second, shared between sources", func(l *relay.DialectLimits) any { return &l.ConnectRate }},
	}
}

// kept are the columns of what waits for one recipient.
func kept() []column {
	return []column{
		{"inbox-messages", "messages kept for one recipient", func(l *relay.DialectLimits) any { return &l.InboxMessages }},
		{"inbox-bytes", "bytes kept for one recipient", func(l *relay.DialectLimits) any { return &l.InboxBytes }},
		{"inbox-per-sender", "messages kept from one sender to one recipient", func(l *relay.DialectLimits) any { return &l.InboxPerSender }},
		{"inbox-ttl", "how long a message is kept", func(l *relay.DialectLimits) any { return &l.InboxTTL }},
		{"inbox-drop-oldest", "at a full inbox drop the oldest, instead of refusing the new one", func(l *relay.DialectLimits) any { return &l.DropOldest }},
	}
}

func brepLimits() []limit {
	l := []limit{{"brep-payload-bytes", "payload of one frame", func(l *limits) any { return &l.brepPayload }}}
	l = append(l, of("brep", traffic()...)...)
	l = append(l, of("brep", kept()...)...)
	l = append(l, of("brep",
		column{"rooms", "rooms that one session may be in", func(l *relay.DialectLimits) any { return &l.Groups }},
		column{"room-members", "sessions in one room", func(l *relay.DialectLimits) any { return &l.GroupMembers }},
		column{"subscriptions", "topic filters of one session", func(l *relay.DialectLimits) any { return &l.Subscriptions }},
		column{"games", "queues for a game that one session may be in", func(l *relay.DialectLimits) any { return &l.Matches }},
		column{"control-bytes", "replies that wait for one connection, before it is cut", func(l *relay.DialectLimits) any { return &l.ControlBytes }},
		column{"unready-bytes", "one message before the login", func(l *relay.DialectLimits) any { return &l.UnreadyBytes }},
	)...)
	return append(l, limit{"handshake-timeout", "from the start of a connection to the login", func(l *limits) any { return &l.dialects["brep"].ReadyTimeout }})
}

func jsonLimits() []limit {
	l := of("json", column{"message-bytes", "one message over TCP or WebSocket", func(l *relay.DialectLimits) any { return &l.MessageBytes }})
	l = append(l, of("json", traffic()...)...)
	l = append(l, of("json", kept()...)...)
	l = append(l, of("json",
		column{"rooms", "rooms that one connection may be in", func(l *relay.DialectLimits) any { return &l.Groups }},
		column{"room-members", "connections in one room", func(l *relay.DialectLimits) any { return &l.GroupMembers }},
		column{"subscriptions", "topic filters of one connection", func(l *relay.DialectLimits) any { return &l.Subscriptions }},
		column{"games", "queues for a game that one connection may be in", func(l *relay.DialectLimits) any { return &l.Matches }},
		column{"topic-bytes", "a topic or a filter", func(l *relay.DialectLimits) any { return &l.TopicBytes }},
		column{"topic-levels", "levels of one", func(l *relay.DialectLimits) any { return &l.TopicLevels }},
		column{"register-timeout", "from the start of a connection to its registration", func(l *relay.DialectLimits) any { return &l.ReadyTimeout }},
	)...)
	return append(l,
		limit{"json-name-bytes", "an address, a room or a game", func(l *limits) any { return &l.json.NameBytes }},
		limit{"json-aliases", "addresses that are bound to keys", func(l *limits) any { return &l.json.Aliases }},
		limit{"json-aliases-per-source", "those that were bound from one source", func(l *limits) any { return &l.json.AliasesPerSource }},
		limit{"json-alias-ttl", "how long one is kept unused", func(l *limits) any { return &l.json.AliasTTL }},
		limit{"json-datagram-bytes", "one message over UDP", func(l *limits) any { return &l.json.DatagramBytes }},
		limit{"json-datagram-rate", "datagrams a second and source that are looked at", func(l *limits) any { return &l.datagram.SourceRate }},
		limit{"json-datagram-pace", "datagrams a second that are sent to one source", func(l *limits) any { return &l.datagram.PaceRate }},
		limit{"json-datagram-idle", "how long a session over UDP lasts without a datagram", func(l *limits) any { return &l.datagram.IdleTimeout }},
	)
}

func blindLimits() []limit {
	l := []limit{{"blind-frame-bytes", "one frame", func(l *limits) any { return &l.blindFrame }}}
	l = append(l, of("blind", traffic()...)...)
	l = append(l, of("blind",
		column{"subscriptions", "routing keys that one connection may subscribe to", func(l *relay.DialectLimits) any { return &l.Groups }},
		column{"aliases", "live aliases that one connection may have made by rotations", func(l *relay.DialectLimits) any { return &l.Aliases }},
		column{"outbox-messages", "frames that wait in memory for one connection, before it is closed", func(l *relay.DialectLimits) any { return &l.OutboxMessages }},
		column{"outbox-bytes", "bytes of them", func(l *relay.DialectLimits) any { return &l.OutboxBytes }},
	)...)
	return append(l,
		limit{"blind-key-bytes", "one routing key", func(l *limits) any { return &l.blind.KeyBytes }},
		limit{"blind-rotate-grace", "how long a routing key that was rotated leads to the new one", func(l *limits) any { return &l.blind.Grace }},
	)
}

func mailboxLimits() []limit {
	return of("mailbox",
		column{"blob-bytes", "one blob", func(l *relay.DialectLimits) any { return &l.MessageBytes }},
		column{"recipient-blobs", "blobs that wait for one recipient", func(l *relay.DialectLimits) any { return &l.InboxMessages }},
		column{"sender-blobs", "blobs of one sender that wait", func(l *relay.DialectLimits) any { return &l.SenderTotal }},
		column{"ttl", "how long a blob is kept", func(l *relay.DialectLimits) any { return &l.InboxTTL }},
		column{"rate", "requests a second and source", func(l *relay.DialectLimits) any { return &l.MessageRate }},
		column{"burst", "requests at once, beyond the rate", func(l *relay.DialectLimits) any { return &l.MessageBurst }},
		column{"body-timeout", "how long the body of a request may take", func(l *relay.DialectLimits) any { return &l.ReadyTimeout }},
	)
}

func commonLimits() []limit {
	return []limit{
		{"unready-connections", "connections that have not logged in, at a time", func(l *limits) any { return &l.relay.Unready }},
		{"takeover-burst", "sessions that may replace one another at an address in a row", func(l *limits) any { return &l.relay.TakeoverBurst }},
		{"takeover-interval", "between those that do after that", func(l *limits) any { return &l.relay.TakeoverInterval }},
		{"write-timeout", "how long a write may make no progress before the connection is cut", func(l *limits) any { return &l.relay.WriteTimeout }},
		{"outbox-messages", "messages that wait in memory for one connection, before they go to the inbox", func(l *limits) any { return &l.relay.OutboxMessages }},
		{"outbox-bytes", "bytes of them", func(l *limits) any { return &l.relay.OutboxBytes }},
		{"window-messages", "messages that a session may have been handed and not acknowledged, where its client does", func(l *limits) any { return &l.relay.WindowMessages }},
		{"window-bytes", "bytes of them", func(l *limits) any { return &l.relay.WindowBytes }},
		{"ack-timeout", "how long one of them may stay unacknowledged before it is stored as well", func(l *limits) any { return &l.relay.AckTimeout }},
		{"control-bytes", "replies that wait for one connection, before it is cut", func(l *limits) any { return &l.relay.ControlBytes }},
		{"flush-bytes", "how much of a backlog is in memory at a time", func(l *limits) any { return &l.relay.FlushBytes }},
		{"retained-values", "retained values of all topics; a quarter of it for one publisher", func(l *limits) any { return &l.relay.RetainedValues }},
		{"retained-bytes", "bytes of them", func(l *limits) any { return &l.relay.RetainedBytes }},
		{"aliases", "names of routing keys that are aliases of others, after a rotation", func(l *limits) any { return &l.relay.Aliases }},
		{"purge-interval", "between purges of what has expired", func(l *limits) any { return &l.relay.PurgeInterval }},
		{"hook-timeout", "how long a policy may think", func(l *limits) any { return &l.relay.HookTimeout }},
	}
}
