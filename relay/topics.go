package relay

import (
	"context"
	"slices"
	"sync"

	"github.com/sotto-relay/sotto/pubsub"
)

// topics are the topics of a server: who subscribes to them, and the values that
// they retain. The topics of a realm are a name space of their own.
//
// A subscriber gets a value either retained or live, never neither and never
// both. What decides is the version of the tree of subscriptions: a publication
// leaves in the retained value of its topic the version that it was matched
// with, and a replay passes by those that have been left the version of its
// subscription or a later one, for what left it there goes live to it. Both do
// so under the lock of the topic, so that publications to a topic that retains a
// value come to everybody in the same order, and the last one is the value.
// Nothing is locked over all topics, and nothing at all where none is retained.
type topics struct {
	s        *Server
	spaces   sync.Map  // of *space, by Realm
	hits     sync.Pool // of *[]pubsub.Hit[*Port]
	looking  sync.Mutex
	retained values
}

// A space is the topics of one realm.
type space struct {
	realm  Realm
	router *router
	tree   *pubsub.Tree[*Port]
	values *pubsub.Retained[*retained]
	locks  [shards]sync.Mutex
}

// lock returns the lock of a topic.
func (sp *space) lock(topic string) *sync.Mutex {
	return &sp.locks[sp.router.shard(Address{Realm: sp.realm, Name: topic})]
}

// init takes the store that retained values are kept in; nil: they are not.
func (t *topics) init(s *Server, kept State) {
	t.s = s
	t.hits.New = func() any { return new([]pubsub.Hit[*Port]) }
	t.retained.s, t.retained.state = s, kept
	if kept != nil {
		t.load()
	}
}

func (t *topics) space(r Realm) *space {
	sp, ok := t.spaces.Load(r)
	if !ok {
		sp, _ = t.spaces.LoadOrStore(r, &space{
			realm: r, router: &t.s.router, tree: pubsub.NewTree[*Port](), values: pubsub.NewRetained[*retained](),
		})
	}
	return sp.(*space)
}

// look looks at some topics that retain a value, from one on, and returns those
// that a filter matches, and where to go on; "" is the end. Many may have to be
// looked at for few that match: all sessions together take one processor for that
// at most, whatever they subscribe to.
func (t *topics) look(topics []string, sp *space, filter, from string) (_ []string, next string) {
	t.looking.Lock()
	defer t.looking.Unlock()
	return sp.values.Topics(topics, filter, from, aLook)
}

const aLook = 64

// subscriptions are those of one session.
type subscriptions struct {
	spaces  []*space // in which it has had any; under Port.loop
	replays replays
}

// Retain says what a publication does to the value that its topic retains.
type Retain uint8

const (
	RetainNo    Retain = iota // nothing
	RetainValue               // it is the value from here on
	RetainClear               // there is none from here on
)

// Subscribe has the session get what is published to the topics that a filter
// matches: once each, however many of its filters match. confirm, if not nil, is
// called before any of that can come; it runs under a lock, so all it does is to
// Reply. Then come the values that the topics retain, in order of the topics'
// bytes and as fast as the peer reads, but for those that something live has
// replaced by then. Subscribing again sends them again, and is one subscription.
//
// The error is a *Refusal: CodeInvalidFilter, CodeQuota, or the policy's.
func (p *Port) Subscribe(filter Address, confirm func()) error {
	if !p.names().ValidFilter(filter.Name) {
		return &Refusal{Code: CodeInvalidFilter}
	}
	if hook := p.s.Policy.Subscribe; hook != nil {
		err := p.ask(func(ctx context.Context) error {
			return hook(ctx, JoinInfo{Conn: p.Info(), From: p.Address(), Group: filter})
		})
		if err != nil {
			return AsRefusal(err)
		}
	}
	sp := p.s.topics.space(filter.Realm)
	if most := p.limits().Subscriptions; most > 0 && p.subscribed() >= most && !sp.tree.Has(p, filter.Name) {
		return &Refusal{Code: CodeQuota}
	}
	if p.openBatch() { // so that nothing is written under the tree's lock
		defer p.closeBatch()
	}
	if !slices.Contains(p.topics.spaces, sp) {
		p.topics.spaces = append(p.topics.spaces, sp)
	}
	p.replay(sp, filter, sp.tree.Subscribe(p, filter.Name, confirm))
	return nil
}

// Unsubscribe ends a subscription. It is no error if there is none. What is being
// published just then may still come.
func (p *Port) Unsubscribe(filter Address) {
	sp := p.s.topics.space(filter.Realm)
	sp.tree.Unsubscribe(p, filter.Name)
	p.topics.replays.cancel(filter)
}

func (p *Port) leaveTopics() {
	for _, sp := range p.topics.spaces {
		sp.tree.UnsubscribeAll(p)
	}
}

// subscribed returns how many subscriptions the session has.
func (p *Port) subscribed() (n int) {
	for _, sp := range p.topics.spaces {
		n += sp.tree.Count(p)
	}
	return n
}

// names are the bounds of topics and filters.
func (p *Port) names() pubsub.Limits {
	l := p.limits()
	return pubsub.Limits{Bytes: l.TopicBytes, Levels: l.TopicLevels}
}

// PublishTopic sends m to all who have subscribed to the topic m.To, this session
// included, and returns how many those are. Nothing is stored for those who are
// away. A session whose outbox is full loses its oldest publications, counted, and
// is told by a NoticeGap for each filter that they came by. r says what becomes of
// the value that the topic retains: it is kept in the State soon afterwards.
//
// The error is a *Refusal: CodeInvalidTopic, CodeRetainedFull, CodeOverloaded when
// the State is far behind, or the policy's. Then nothing was sent.
func (p *Port) PublishTopic(m *Message, r Retain) (n int, err error) {
	m.From = p.Address()
	refusal := p.mayPublish(m)
	if refusal == nil {
		n, refusal = p.publishTopic(m, r)
	}
	if refusal != nil {
		p.s.refuse(refusal.Code)
		return 0, refusal
	}
	return n, nil
}

func (p *Port) mayPublish(m *Message) *Refusal {
	if !p.names().ValidTopic(m.To.Name) {
		return &Refusal{Code: CodeInvalidTopic}
	}
	if hook := p.s.Policy.Publish; hook != nil {
		return p.askSend(hook, m)
	}
	return nil
}

func (p *Port) publishTopic(m *Message, r Retain) (n int, refusal *Refusal) {
	if p.openBatch() { // so that nothing is written under the topic's lock
		defer p.closeBatch()
	}
	t := &p.s.topics
	sp := t.space(m.To.Realm)
	lock := sp.lock(m.To.Name)
	if r != RetainNo {
		lock.Lock()
		defer lock.Unlock()
		if refusal = t.retained.change(sp, m, r); refusal != nil {
			return 0, refusal
		}
	}
	buf := t.hits.Get().(*[]pubsub.Hit[*Port])
	found, version := sp.tree.Match((*buf)[:0], m.To.Name)
	v, retains := sp.values.Get(m.To.Name)
	if retains && r == RetainNo {
		lock.Lock()
		defer lock.Unlock()
		found, version = sp.tree.Match(found[:0], m.To.Name) // others may have come first
		v, retains = sp.values.Get(m.To.Name)
	}
	if retains { // else what is there by now must be left alone, without the lock
		v.live = version
	}
	lost, o := 0, PublishOptions{filter: Address{Realm: m.To.Realm}}
	for _, hit := range found {
		o.filter.Name = hit.Filter
		taken, l := p.publishTo(hit.Subscriber, m, &o)
		n += taken
		lost += l
	}
	p.published(n, lost)
	clear(found)
	*buf = found
	t.hits.Put(buf)
	return n, nil
}
