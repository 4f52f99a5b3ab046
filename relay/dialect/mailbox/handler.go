package mailbox

import (
	"crypto/rand"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// Options are for [Handler]. Zero fields mean what is said here. Limits of blobs
// and mailboxes are those of the relay.Server, by the name of [Dialect].
type Options struct {
	// Relay is the relay's public key, for which clients sign requests in a header.
	// Nil: only signatures of version 1 are taken.
	Relay *crypto.PublicKey

	// Strict has recipients be contacts too, not only senders and readers.
	Strict bool

	// TrustedProxies are believed what they say of their clients, in
	// X-Forwarded-For (see ws.Options).
	TrustedProxies []netip.Prefix

	Window  time.Duration // how far a timestamp may be from the relay's clock (5 min)
	PerKey  int           // requests of one key that are remembered, within twice the window (1,000)
	Repeats time.Duration // how long a blob that was removed is recognised when it is stored again (10 min)

	MaxWait    time.Duration // ?wait beyond it is shortened (60 s)
	MaxLease   time.Duration // ?lease beyond it is refused (1 h)
	Waiting    int           // long polls and streams at a time (10,000)
	WaitingKey int           // those of one key (16)

	// BodyBytes bounds the request bodies in memory at a time, and a quarter of it
	// those of one source (256 MiB). What is made of a body while it is checked
	// takes up to twelve times as much again, in the worst case.
	BodyBytes int64
}

func (o Options) withDefaults() Options {
	orDefault(&o.Window, 5*time.Minute)
	orDefault(&o.PerKey, 1000)
	orDefault(&o.Repeats, 10*time.Minute)
	orDefault(&o.MaxWait, time.Minute)
	orDefault(&o.MaxLease, time.Hour)
	orDefault(&o.Waiting, 10_000)
	orDefault(&o.WaitingKey, 16)
	orDefault(&o.BodyBytes, 256<<20)
	return o
}

func orDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Handler returns the mailbox of a server, which must have an Inbox, for contacts;
// nil knows nobody. o may be nil. A server has one Handler, which may be mounted
// more than once: at "/relay/" of a mux.
//
// The handler sets deadlines for bodies and answers itself, so timeouts of the
// http.Server do not cut a long poll. ReadHeaderTimeout and MaxHeaderBytes are the
// http.Server's to set. Long polls and streams end with the request's context: an
// http.Server that is to shut down quickly ends its BaseContext.
//
// Middleware around it has to let http.ResponseController through (Unwrap). What
// cannot be flushed is taken for not handed over, and stays in the mailbox.
func Handler(srv *relay.Server, contacts Contacts, o *Options) http.Handler {
	if srv.Inbox == nil {
		panic("mailbox: the relay.Server has no Inbox")
	}
	if o == nil {
		o = &Options{}
	}
	if contacts == nil {
		contacts = nobody{}
	}
	h := &handler{
		srv: srv, contacts: contacts, log: srv.Logger, Options: o.withDefaults(),
		admitter:     srv.Speak(Dialect{}).(transport.Admitter),
		limits:       srv.Limits.WithDefaults().ForDialect(Dialect{}),
		writeTimeout: srv.Limits.WithDefaults().WriteTimeout,
	}
	if h.log == nil {
		h.log = slog.Default()
	}
	h.sources.rate, h.sources.burst, h.sources.most = h.limits.MessageRate, h.limits.MessageBurst, 1<<16
	h.bodies.all, h.bodies.each = h.BodyBytes, h.BodyBytes/4
	h.waiting.all, h.waiting.each = int64(h.Waiting), int64(h.WaitingKey)
	h.used = newLedger(srv.State, "mailbox.used", h.log)
	h.removed = newLedger(srv.State, "mailbox.removed", h.log)
	_, _ = rand.Read(h.epoch[:]) // which never fails
	h.routes = map[string]route{
		"/relay/store":  {http.MethodPost, h.store},
		"/relay/fetch":  {http.MethodGet, h.fetch},
		"/relay/ack":    {http.MethodPost, h.ack},
		"/relay/stream": {http.MethodGet, h.stream},
		"/relay/key":    {http.MethodGet, h.key},
	}
	return h
}

type handler struct {
	Options
	srv          *relay.Server
	contacts     Contacts
	log          *slog.Logger
	admitter     transport.Admitter
	limits       relay.DialectLimits
	writeTimeout time.Duration
	routes       map[string]route
	epoch        [8]byte // of this process, in the ids of blobs

	sources sources
	bodies  share[netip.Prefix]
	waiting share[crypto.PublicKey]
	busy    keyed   // requests and blobs that something is being done with
	used    *ledger // timestamps and nonces
	removed *ledger // blobs
}

type route struct {
	method string
	serve  func(http.ResponseWriter, *http.Request) error
}

// ServeHTTP answers a request. Nothing of it is logged.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	// Any page may ask: nothing is granted to a browser but what is signed.
	header.Set("Access-Control-Allow-Origin", "*")
	header.Set("Access-Control-Expose-Headers", "Date, Retry-After")

	if err := h.serve(w, r); err != nil {
		h.refuseTo(w, err)
	}
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request) error {
	route, ok := h.routes[r.URL.Path]
	if !ok {
		return refuse(http.StatusNotFound, "there is nothing here")
	}
	header := w.Header()
	switch {
	case r.Method == http.MethodOptions:
		header.Set("Access-Control-Allow-Methods", route.method)
		header.Set("Access-Control-Allow-Headers", "Authorization, Content-Type")
		header.Set("Access-Control-Max-Age", "86400")
		header.Set("Allow", route.method+", OPTIONS")
		w.WriteHeader(http.StatusNoContent)
		return nil
	case r.Method != route.method, r.Method == http.MethodGet && r.ContentLength != 0:
		header.Set("Allow", route.method+", OPTIONS")
		return refuse(http.StatusMethodNotAllowed, "the method here is "+route.method+"; a GET has no body")
	}
	if err := h.admit(h.remote(r)); err != nil {
		return err
	}
	return route.serve(w, r)
}

// key answers with the relay's key.
func (h *handler) key(w http.ResponseWriter, _ *http.Request) error {
	if h.Relay == nil {
		return refuse(http.StatusNotFound, "this relay has no key")
	}
	h.respond(w, http.StatusOK, message{Key: h.Relay.String()})
	return nil
}
