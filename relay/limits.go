package relay

import (
	"time"

	"github.com/sotto-relay/sotto/pubsub"
)

// Limits bound what a server takes and holds. A zero field means its default,
// never "unbounded".
type Limits struct {
	// WriteTimeout is how long a write may make no progress before the connection
	// is cut as slow. Default 30 s.
	WriteTimeout time.Duration

	// OutboxMessages and OutboxBytes bound what waits in memory for one
	// connection. What exceeds them goes to the inbox. A single longer message
	// still passes through an empty outbox. Defaults 1,024 and 1 MiB.
	OutboxMessages int
	OutboxBytes    int

	// WindowMessages and WindowBytes bound what a session that acknowledges may be
	// sent and has not acknowledged. Defaults 256 and 8 MiB.
	WindowMessages int
	WindowBytes    int

	// AckTimeout is how long a message may be unacknowledged by a session that
	// acknowledges, before it is stored as well. Default 10 s.
	AckTimeout time.Duration

	// ControlBytes bounds the replies that wait for one connection; beyond it the
	// connection is closed. Default 64 KiB.
	ControlBytes int

	// FlushBytes is how much of a backlog is in memory at a time while it is
	// written to its recipient. Default 256 KiB.
	FlushBytes int

	// RetainedValues and RetainedBytes bound the retained values of all topics, and
	// a quarter of them those of one publisher. Defaults 100,000 and 256 MiB.
	RetainedValues int
	RetainedBytes  int64

	// Aliases is how many names of groups may be aliases at a time (Port.Move).
	// Default 100,000.
	Aliases int

	// PurgeInterval is the time between purges of expired entries. Default 1 min.
	PurgeInterval time.Duration

	// HookTimeout bounds each question to the Policy. Default 5 s.
	HookTimeout time.Duration

	// TakeoverBurst sessions may replace one another at an address in a row, then
	// one each TakeoverInterval. Defaults 10 and 2 s.
	TakeoverBurst    int
	TakeoverInterval time.Duration

	// Unready is how many connections may be open that are not ready yet: what they
	// can pin together is this times DialectLimits.UnreadyBytes and some KiB each.
	// Default 10,000.
	Unready int

	// Unmetered lifts rates and counts: those whose zero value in Dialects is not
	// overridden there. What bounds memory stays.
	Unmetered bool

	// Dialects override the defaults of dialects, by name.
	Dialects map[string]DialectLimits
}

// DialectLimits are the limits that differ between dialects. Zero fields mean
// the dialect's default, and where it has none, what is said here.
type DialectLimits struct {
	MessageBytes int           // one message, as the transport counts it; 64 KiB
	UnreadyBytes int           // one message before the session is ready; 4 KiB
	ReadyTimeout time.Duration // from the start of the connection to ready; 10 s
	MessageRate  float64       // messages per second and connection; not metered
	MessageBurst int
	ByteRate     float64 // bytes per second and connection; not metered
	ByteBurst    int

	// Connections at a time from one source (see Source), and new ones a second in
	// all, shared fairly between sources: 1,000 and 500.
	SourceConnections int
	ConnectRate       float64

	// What one connection may be in at a time: 4,096 groups, 100 subscriptions to
	// topics, 10 queues for games. And members of one group; not bounded.
	Groups        int
	Subscriptions int
	Matches       int
	GroupMembers  int
	Aliases       int // live ones that it made (Port.Move); 64

	TopicBytes  int // of a topic or a filter; 512
	TopicLevels int // likewise; 32

	OutboxMessages int // as in Limits; those of Limits
	OutboxBytes    int
	ControlBytes   int

	InboxMessages  int           // per recipient; only the store's own bound
	InboxBytes     int64         // likewise
	InboxPerSender int           // entries from one sender to one recipient; likewise
	SenderTotal    int           // entries from one sender to all recipients; likewise
	InboxTTL       time.Duration // for ever
	DropOldest     bool          // at a full inbox drop the oldest instead of refusing the new one
}

// MaxLimits returns limits that meter nothing: for benchmarks and trusted
// networks.
func MaxLimits() Limits { return Limits{Unmetered: true} }

// unlimited is what Unmetered makes of a limit that has a default.
const unlimited = -1 << 30

// def gives v its default if it has none, or one that makes no sense.
func def[T int | int64 | float64 | time.Duration](v *T, d T) {
	if *v <= 0 && *v != unlimited {
		*v = d
	}
}

// WithDefaults returns the limits as a server has them.
func (l Limits) WithDefaults() Limits {
	def(&l.WriteTimeout, 30*time.Second)
	def(&l.OutboxMessages, 1024)
	def(&l.OutboxBytes, 1<<20)
	def(&l.ControlBytes, 64<<10)
	def(&l.WindowMessages, 256)
	def(&l.WindowBytes, 8<<20)
	def(&l.AckTimeout, 10*time.Second)
	def(&l.FlushBytes, 256<<10)
	def(&l.RetainedValues, 100_000)
	def(&l.RetainedBytes, 256<<20)
	def(&l.Aliases, 100_000)
	def(&l.PurgeInterval, time.Minute)
	def(&l.HookTimeout, 5*time.Second)
	def(&l.Unready, 10_000)
	def(&l.TakeoverBurst, 10)
	def(&l.TakeoverInterval, 2*time.Second)
	return l
}

// ForDialect returns the limits of d as a server has them: its defaults with what
// overrides them. l has its own defaults already.
func (l Limits) ForDialect(d Dialect) DialectLimits {
	r, base := l.Dialects[d.Name()], d.Limits()
	if l.Unmetered {
		base.MessageRate, base.ByteRate = 0, 0
		base.SourceConnections, base.ConnectRate = unlimited, unlimited
		base.Groups, base.Subscriptions, base.Matches = unlimited, unlimited, unlimited
	}
	def(&r.MessageBytes, base.MessageBytes)
	def(&r.UnreadyBytes, base.UnreadyBytes)
	def(&r.ReadyTimeout, base.ReadyTimeout)
	def(&r.MessageRate, base.MessageRate)
	def(&r.MessageBurst, base.MessageBurst)
	def(&r.ByteRate, base.ByteRate)
	def(&r.ByteBurst, base.ByteBurst)
	def(&r.InboxMessages, base.InboxMessages)
	def(&r.InboxBytes, base.InboxBytes)
	def(&r.InboxPerSender, base.InboxPerSender)
	def(&r.SenderTotal, base.SenderTotal)
	def(&r.InboxTTL, base.InboxTTL)
	r.DropOldest = r.DropOldest || base.DropOldest
	def(&r.MessageBytes, 64<<10)
	def(&r.UnreadyBytes, 4<<10)
	def(&r.ReadyTimeout, 10*time.Second)
	def(&r.SourceConnections, base.SourceConnections)
	def(&r.SourceConnections, 1000)
	def(&r.ConnectRate, base.ConnectRate)
	def(&r.ConnectRate, 500)
	def(&r.Groups, base.Groups)
	def(&r.Groups, 4096)
	def(&r.Subscriptions, base.Subscriptions)
	def(&r.Subscriptions, 100)
	def(&r.Matches, base.Matches)
	def(&r.Matches, 10)
	def(&r.GroupMembers, base.GroupMembers)
	def(&r.TopicBytes, base.TopicBytes)
	def(&r.TopicBytes, pubsub.MaxBytes)
	def(&r.TopicLevels, base.TopicLevels)
	def(&r.TopicLevels, pubsub.MaxLevels)
	def(&r.Aliases, base.Aliases)
	def(&r.Aliases, 64)
	def(&r.OutboxMessages, base.OutboxMessages)
	def(&r.OutboxMessages, l.OutboxMessages)
	def(&r.OutboxBytes, base.OutboxBytes)
	def(&r.OutboxBytes, l.OutboxBytes)
	def(&r.ControlBytes, base.ControlBytes)
	def(&r.ControlBytes, l.ControlBytes)
	return r
}
