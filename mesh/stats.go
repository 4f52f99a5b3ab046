package mesh

// Stats says what a Mesh has, and has done. Its names are those of spec mesh.md.
type Stats struct {
	// Now.
	Links     int // with other relays
	Relays    int // in the directory, itself not counted
	Attached  int // clients here, of which owners are told
	Owned     int // clients of which this relay, as an owner, knows something
	MailFor   int // clients that are not here and have mail here
	Searching int // clients that are being looked for
	Waiting   int // bytes of messages for them
	Cached    int // places in the location cache, also that a client is nowhere

	// Since New. A lookup ends with Found or Missing, or when the client comes here.
	CacheHits   uint64 // messages for whose recipient the cache had an answer
	CacheMisses uint64 // and had none, so that a lookup was due
	Lookups     uint64
	Queries     uint64 // of those, what all relays that are linked were asked with QUERY_CLIENT
	Found       uint64
	Missing     uint64
	Carried     uint64 // messages that were sent over a link
	NotHere     uint64 // of those, for clients that were not there
}

// Stats returns the Stats of now.
func (m *Mesh) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.count
	s.Links, s.Relays = len(m.links), len(m.dir.relays)
	s.Attached, s.Owned, s.MailFor = len(m.here), len(m.owned), len(m.mail)
	s.Searching, s.Waiting, s.Cached = len(m.searches), m.waiting, m.places.order.Len()
	return s
}
