// Package pubsub finds who has subscribed to a topic, and keeps the last value
// of topics for those who come later. It knows no wire format, no connection and
// no message: subscribers and values are whatever the caller has.
//
// Topics and filters are those of spec json.md, "topics". A topic is levels with
// '/' between them, any of which may be empty; a filter is a topic whose levels
// may be '+', which stands for any one level, and whose last may be '#', which
// stands for the rest and for nothing. '$' is not special. Names are compared as
// bytes: whether they are UTF-8, and how it is normalized, is not looked at.
//
// A [Tree] holds subscriptions. Filters without wildcards are in a hash map, the
// others in a trie of which each node has as many levels as no filter tells
// apart. So a match visits at most two nodes for each filter with wildcards,
// whatever filters there are: a subscription costs a match no more than a
// delivery costs.
//
// [Retained] holds values by topic, in order.
//
// Both are safe for concurrent use. Matches run concurrently with one another; a
// change keeps them out for the time of one step of a walk down the trie, of some
// microseconds, however many subscriptions there are.
package pubsub
