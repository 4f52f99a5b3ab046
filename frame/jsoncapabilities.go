package frame

import "encoding/json"

// Capabilities is what a relay of the json dialect says of itself (spec json.md,
// "capabilities").
type Capabilities struct {
	Version    string             `json:"version"`
	Dialect    string             `json:"dialect"`
	Transports []string           `json:"transports"`
	Features   []string           `json:"features"`
	Limits     CapabilitiesLimits `json:"limits"`
	LoadTier   string             `json:"load_tier"`
}

// CapabilitiesLimits are the limits that a client may want to know. Zero stands
// for none.
type CapabilitiesLimits struct {
	MessageBytes      int     `json:"message_bytes"`       // one message
	DatagramBytes     int     `json:"datagram_bytes"`      // one message in a datagram
	MessagesPerSecond float64 `json:"messages_per_second"` // of a connection
	MessageBurst      int     `json:"message_burst"`
	SourceConnections int     `json:"source_connections"` // at a time from one source
	NameBytes         int     `json:"name_bytes"`         // addresses, rooms, games
	TopicBytes        int     `json:"topic_bytes"`
	TopicLevels       int     `json:"topic_levels"`
	Subscriptions     int     `json:"subscriptions"` // of a connection
	Rooms             int     `json:"rooms"`         // likewise
	Matches           int     `json:"matches"`       // likewise
	RoomMembers       int     `json:"room_members"`
	InboxMessages     int     `json:"inbox_messages"` // of an address
	InboxSeconds      int64   `json:"inbox_seconds"`
}

// Append appends {"t":"capabilities","version":…,"dialect":…,"transports":[…],
// "features":[…],"limits":{…},"load_tier":…}.
func (c *Capabilities) Append(dst []byte) []byte {
	list := func(l []string) []string { return append([]string{}, l...) } // [], and not null
	all := struct {
		Type string `json:"t"`
		Capabilities
	}{"capabilities", *c}
	all.Transports, all.Features = list(c.Transports), list(c.Features)
	b, err := json.Marshal(&all)
	if err != nil {
		panic(err) // strings and finite numbers
	}
	return append(dst, b...)
}

// AppendLoadTier appends the short form of Capabilities, for an answer to who has
// not shown where he is: {"t":"capabilities","load_tier":…}.
func AppendLoadTier(dst []byte, tier string) []byte {
	return appendNamed(dst, `{"t":"capabilities","load_tier":`, tier)
}
