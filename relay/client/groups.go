package client

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// Old keys of a group open what was published before the latest, and retained since.
const (
	groupKeys    = 8       // of a group, with the latest
	groupKeyTime = keyTime // after there was another
)

// maxSharing is to how many members a key is sent at a time. Who sends to one whose card
// has to be waited for holds up nobody else.
const maxSharing = 64

// The bucket of groups in Config.Store: the key is the owner's 32 ‖ id 16; the value,
// encrypted, how many keys u8 ‖ the keys, the oldest first: when it was replaced, u64 ms,
// or zero ‖ what is sent of it, 52 ‖ how many members the owner knows, u32 ‖ the
// members, 32 each ‖ what was retained under blinded names, the oldest first: the epoch,
// u32 ‖ the name as relays have it, u16 length ‖ bytes.
const (
	groupsBucket  = "client/groups/"
	groupKeyEntry = 8 + 52
)

// Errors with which publications and keys of groups are dropped, or not sent.
var (
	// ErrNoGroupKey means that no key of that group, or of its epoch, has come.
	ErrNoGroupKey = errors.New("client: no key of the group")

	// ErrNotOwner means that the group is somebody else's to change.
	ErrNotOwner = errors.New("client: not the owner of the group")

	errUnsealed     = errors.New("client: not sealed for the group")
	errGroupUnasked = errors.New("client: a key of a group that Config.Groups does not accept")
	errGroupKey     = errors.New("client: a key of a group that is none, or not a newer one")
)

// Names says what relays see of the names of topics (spec native.md, "Blinded
// topics"). Those of rooms are not hidden.
type Names uint8

const (
	NamesClear   Names = iota // all
	NamesBlinded              // that topics begin with the same levels; filters have # and + as the last level only
	NamesFlat                 // which levels are equal; filters may have + anywhere
)

// A groupName is one of all groups: ids are for one owner only.
type groupName struct {
	owner crypto.PublicKey
	id    crypto.GroupID
}

func (n groupName) key() string { return string(n.owner[:]) + string(n.id[:]) }

// A groupState is what is known of a group.
type groupState struct {
	keys     []groupKey // the oldest first
	members  []crypto.PublicKey
	retained []retainedName // by this Client, the oldest first
}

type groupKey struct {
	*crypto.GroupKey
	replaced time.Time // zero: it is the latest
}

func (s *groupState) latest() *crypto.GroupKey { return s.keys[len(s.keys)-1].GroupKey }

// with returns a state with a newer key, and without those that are too old or many.
func (s *groupState) with(k *crypto.GroupKey, now time.Time) *groupState {
	next := &groupState{members: s.members, retained: s.retained}
	for _, old := range append(slices.Clone(s.keys), groupKey{GroupKey: k}) {
		if old.replaced.IsZero() {
			old.replaced = now
		}
		if now.Sub(old.replaced) < groupKeyTime {
			next.keys = append(next.keys, old)
		}
	}
	next.keys = next.keys[max(0, len(next.keys)-groupKeys):]
	next.keys[len(next.keys)-1].replaced = time.Time{}
	return next
}

func (s *groupState) encode() []byte {
	b := []byte{byte(len(s.keys))}
	for _, k := range s.keys {
		var ms uint64
		if !k.replaced.IsZero() {
			ms = uint64(k.replaced.UnixMilli())
		}
		b = append(binary.BigEndian.AppendUint64(b, ms), k.Content().Data...)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(s.members)))
	for _, m := range s.members {
		b = append(b, m[:]...)
	}
	for _, r := range s.retained {
		b = r.append(b)
	}
	return b
}

func decodeGroup(b []byte) (*groupState, error) {
	if len(b) < 1 || b[0] == 0 || len(b) < 1+int(b[0])*groupKeyEntry+4 {
		return nil, errStored
	}
	s := new(groupState)
	n, b := int(b[0]), b[1:]
	for range n {
		k, err := crypto.ParseGroupKey(b[8:groupKeyEntry])
		if err != nil {
			return nil, errStored
		}
		key := groupKey{GroupKey: k}
		if ms := binary.BigEndian.Uint64(b); ms > 0 {
			key.replaced = time.UnixMilli(int64(ms))
		}
		s.keys = append(s.keys, key)
		b = b[groupKeyEntry:]
	}
	members, b := binary.BigEndian.Uint32(b), b[4:]
	if uint64(len(b)) < 32*uint64(members) {
		return nil, errStored
	}
	for range members {
		s.members = append(s.members, crypto.PublicKey(b))
		b = b[32:]
	}
	var err error
	s.retained, err = decodeRetained(b)
	return s, err
}

// groups are those that the Client has keys of.
type groups struct {
	safe    *safe
	turn    chan struct{} // with room for one: taken by who changes them, and waits for no relay
	naming  chan struct{} // with room for one: see hold
	rekeyed func()        // called when a group has another latest key; blinded names are others

	mu      sync.Mutex
	all     map[groupName]*groupState // states are replaced, never changed
	changed chan struct{}             // closed when one is
}

func openGroups(ctx context.Context, s *safe, rekeyed func()) (*groups, error) {
	g := &groups{
		safe: s, turn: make(chan struct{}, 1), naming: make(chan struct{}, 1), rekeyed: rekeyed,
		all: make(map[groupName]*groupState), changed: make(chan struct{}),
	}
	for item, err := range s.all(ctx) {
		if err != nil {
			return nil, err
		}
		state, err := decodeGroup(item.Value)
		if err != nil || len(item.Key) != 48 {
			s.failed(errStored)
			continue
		}
		g.all[groupName{crypto.PublicKey([]byte(item.Key)), crypto.GroupID([]byte(item.Key[32:]))}] = state
	}
	return g, nil
}

// get returns a group, nil if there is none, and what is closed when one changes.
func (g *groups) get(n groupName) (*groupState, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all[n], g.changed
}

// change stores what f makes of a group, nil if there is none yet, and then has it so.
// Nil and no error: nothing changes.
func (g *groups) change(ctx context.Context, n groupName, f func(*groupState) (*groupState, error)) error {
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	before, _ := g.get(n)
	after, err := f(before)
	if err != nil || after == nil {
		return err
	}
	if err := g.safe.put(ctx, n.key(), after.encode()); err != nil {
		return err
	}
	g.set(n, after)
	if before == nil || before.latest() != after.latest() {
		g.rekeyed()
	}
	return nil
}

func (g *groups) set(n groupName, s *groupState) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all[n] = s
	close(g.changed)
	g.changed = make(chan struct{})
}

// A Group is a set of keys, whom its owner tells a secret: with it they hide from
// relays, and from all others, what they say in topics and rooms, and the names of
// topics. Who is a member is on the owner's list; a relay's word about it counts for
// nothing. Every member can read and write, and Publication.From says who wrote.
//
// When a member leaves there is a new epoch with another secret. What was published
// before the others have it can be read by who has left; and for 15 days they take
// what is written with an old one, so that Publication.From is to be looked at.
// Keys of at most 7 old epochs are kept.
//
// Blinded names are others in each epoch. Subscriptions with them go on under the new
// names, after a [Publication] with Gap. What was retained under the old names is
// cleared, by each Client what it has published itself: by the owner's before there is
// a new epoch, by a member's when it has the new key, and again when it starts, until
// the relay agrees. What a member retained that is away, or has left, stays until then,
// or for good. A Client remembers the latest 1,024 names of a Group under which it had
// something retained; what is older is not cleared. Nothing is retained under the new
// names until it is published again.
//
// Without a Config.Store a Group lasts as long as the Client. A member without one takes,
// after a restart, the first key of the owner's that comes, and nothing tells that it is
// an old one, which the relay has kept and brings again; the member writes with that
// until a newer one comes. All methods may be called by any goroutine.
type Group struct {
	c    *Client
	name groupName
}

// NewGroup makes a group that is ours, without members but us.
func (c *Client) NewGroup(ctx context.Context) (*Group, error) {
	key, err := crypto.NewGroup()
	if err != nil {
		return nil, err
	}
	g := c.Group(c.cfg.Identity.Public(), key.ID())
	return g, c.groups.change(ctx, g.name, func(*groupState) (*groupState, error) {
		return new(groupState).with(key, time.Now()), nil
	})
}

// Group returns the group of an owner with an id. Its key may come later, from that
// owner only, if Config.Groups accepts it; see [Group.Epoch].
func (c *Client) Group(owner crypto.PublicKey, id crypto.GroupID) *Group {
	return &Group{c, groupName{owner, id}}
}

// ID returns the id, which is the owner's for this group.
func (g *Group) ID() crypto.GroupID { return g.name.id }

// Owner returns whose list says who is a member.
func (g *Group) Owner() crypto.PublicKey { return g.name.owner }

// Epoch returns the number of the latest key, zero if there is none yet, and a channel
// that is closed when it, or that of another group, may be another. Numbers increase, by
// any amount. What is to be retained under blinded names is then to be published again;
// subscriptions go on.
func (g *Group) Epoch() (uint32, <-chan struct{}) {
	s, changed := g.c.groups.get(g.name)
	if s == nil {
		return 0, changed
	}
	return s.latest().Epoch(), changed
}

// Members returns the owner's list, without the owner; to others it is empty.
func (g *Group) Members() []crypto.PublicKey {
	s, _ := g.c.groups.get(g.name)
	if s == nil {
		return nil
	}
	return slices.Clone(s.members)
}

// Add adds members to the owner's list and sends them the key. They cannot read what
// was published in earlier epochs. The errors are ErrNotOwner, those of Config.Store,
// and those of [Client.Send] with NoWait: then they are on the list all the same, and
// Share goes on.
func (g *Group) Add(ctx context.Context, members ...crypto.PublicKey) error {
	for _, m := range members {
		if err := m.Check(); err != nil {
			return err
		}
	}
	err := g.edit(ctx, func(s *groupState) (*groupState, error) {
		next := &groupState{keys: s.keys, members: slices.Clone(s.members), retained: s.retained}
		for _, m := range members {
			if m != g.name.owner && !slices.Contains(next.members, m) {
				next.members = append(next.members, m)
			}
		}
		return next, nil
	})
	if err != nil {
		return err
	}
	return g.share(ctx, members)
}

// Remove takes members off the owner's list, begins a new epoch, and sends the others
// its key. Before that it clears what this Client has had retained under blinded names
// (see [Group]): if there is any, it waits for a connection and the relay's receipts, and
// so does meanwhile who publishes with Retain and Writing.
//
// Errors are those of Add. If ctx or the Client ends before all is cleared, the epoch has
// not begun, the list is as it was, and Remove can be called again. If the relay refuses
// to clear, the epoch begins all the same, and the error is a [*RefusedError] besides.
func (g *Group) Remove(ctx context.Context, members ...crypto.PublicKey) error {
	refused, err := g.rekey(ctx, members)
	if err != nil {
		return err
	}
	return errors.Join(refused, g.Share(ctx))
}

// Share sends all members the latest key, again for those who have it.
func (g *Group) Share(ctx context.Context) error { return g.share(ctx, g.Members()) }

func (g *Group) edit(ctx context.Context, f func(*groupState) (*groupState, error)) error {
	if g.name.owner != g.c.cfg.Identity.Public() {
		return ErrNotOwner
	}
	return g.c.groups.change(ctx, g.name, func(s *groupState) (*groupState, error) {
		if s == nil {
			return nil, ErrNoGroupKey
		}
		return f(s)
	})
}

func (g *Group) share(ctx context.Context, members []crypto.PublicKey) error {
	s, _ := g.c.groups.get(g.name)
	if s == nil || g.name.owner != g.c.cfg.Identity.Public() {
		return ErrNotOwner
	}
	var sending sync.WaitGroup
	places := make(chan struct{}, maxSharing)
	failed := make([]error, len(members))
	for i, m := range members {
		if m == g.name.owner || !slices.Contains(s.members, m) {
			continue
		}
		places <- struct{}{}
		sending.Go(func() {
			_, failed[i] = g.c.Send(ctx, m, Content{Content: s.latest().Content()}, NoWait())
			<-places
		})
	}
	sending.Wait()
	return errors.Join(failed...)
}

// isGroupKey says whether a letter has a group's key, and is not for the application.
func isGroupKey(l *Letter) bool { return l.Type == crypto.GroupKeys }

// takeGroupKey takes a key from a group's owner.
func (c *Client) takeGroupKey(l *Letter) error {
	key, err := crypto.ParseGroupKey(l.Data)
	if err != nil || l.Protection != ProtectionSealed {
		return errGroupKey
	}
	ctx, cancel := context.WithTimeout(c.life, storeTime)
	defer cancel()
	name := groupName{l.From, key.ID()}
	return c.groups.change(ctx, name, func(s *groupState) (*groupState, error) {
		switch {
		case l.From == c.cfg.Identity.Public():
			return nil, errGroupKey // ours are made here
		case s == nil && (c.cfg.Groups == nil || !c.cfg.Groups(l.From, key.ID())):
			return nil, errGroupUnasked
		case s == nil:
			s = new(groupState)
		}
		if len(s.keys) > 0 {
			switch latest := s.latest(); {
			case key.Equal(latest):
				return nil, nil
			case key.Epoch() <= latest.Epoch():
				return nil, errGroupKey
			}
		}
		return s.with(key, time.Now()), nil
	})
}

// Reading has a subscription, or a room, take what is sealed for the group, and
// nothing else, but for publications without data to topics: anybody who knows the
// name can end what is retained there, so Publication.From is to be looked at. In a
// room, what is sent is sealed too.
func (g *Group) Reading(n Names) SubscribeOption {
	return func(o *subscribeOptions) { o.sealer = &groupSealer{g, n} }
}

// Writing has what is published sealed for the group. What has no data is published
// as it is, since for the relay that ends what is retained.
func (g *Group) Writing(n Names) SendOption {
	return func(o *sendOptions) { o.sealer = &groupSealer{g, n} }
}

// A groupSealer implements sealer for a group.
type groupSealer struct {
	group *Group
	names Names
}

func (s *groupSealer) key() (*crypto.GroupKey, error) {
	state, _ := s.group.c.groups.get(s.group.name)
	if state == nil {
		return nil, ErrNoGroupKey
	}
	return state.latest(), nil
}

func (s *groupSealer) name(k feedKey) (feedKey, error) {
	return s.blind(k, (*crypto.GroupKey).BlindFilter)
}

func (s *groupSealer) blind(k feedKey, as func(*crypto.GroupKey, string, bool) (string, error)) (feedKey, error) {
	key, err := s.key()
	if err != nil || s.names == NamesClear || k.as != frame.TypePublish {
		return k, err
	}
	k.name, err = as(key, k.name, s.names == NamesFlat)
	return k, err
}

func (s *groupSealer) seal(to feedKey, data []byte) (feedKey, []byte, error) {
	key, err := s.key()
	if err != nil {
		return to, nil, err
	}
	if to, err = s.blind(to, (*crypto.GroupKey).BlindTopic); err != nil || len(data) == 0 && to.as == frame.TypePublish {
		return to, nil, err
	}
	data, err = key.Seal(to.name, crypto.Content{Type: crypto.Raw, Data: data})
	return to, data, err
}

// open implements sealer. Who has published was verified.
func (s *groupSealer) open(p *Publication) error {
	if len(p.Data) == 0 {
		return nil
	}
	id, epoch, err := crypto.ParseGroupHead(p.Data)
	if err != nil {
		return err
	}
	state, _ := s.group.c.groups.get(s.group.name)
	if state == nil || id != s.group.name.id {
		return ErrNoGroupKey
	}
	now := time.Now()
	for _, k := range state.keys {
		if k.Epoch() != epoch || !k.replaced.IsZero() && now.Sub(k.replaced) >= groupKeyTime {
			continue
		}
		c, err := k.Open(p.Topic, p.Data)
		if err != nil {
			return err
		}
		p.Data = c.Data
		return nil
	}
	return ErrNoGroupKey
}
