package mailbox

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/sotto-relay/sotto/relay"
)

// A refusal is an answer that is no success: a status and a fixed sentence.
type refusal struct {
	status     int
	sentence   string
	retryAfter time.Duration // zero: not said
	err        error         // for the log
}

func (r *refusal) Error() string { return r.sentence }
func (r *refusal) Unwrap() error { return r.err }

func refuse(status int, sentence string) *refusal {
	return &refusal{status: status, sentence: sentence}
}

func malformed(sentence string) *refusal { return refuse(http.StatusBadRequest, sentence) }

// later asks a client to come back.
func later(status int, sentence string, after time.Duration) *refusal {
	return &refusal{status: status, sentence: sentence, retryAfter: after}
}

// failed is what a stranger may know of an error of ours.
func failed(err error) *refusal {
	return &refusal{status: http.StatusServiceUnavailable, sentence: "the relay cannot do this now", retryAfter: 10 * time.Second, err: err}
}

// refusalOf returns the answer to a message that the relay refused.
func refusalOf(code relay.Code) *refusal {
	switch code {
	case relay.CodeInboxFull:
		return later(http.StatusTooManyRequests, "the recipient's mailbox is full", time.Minute)
	case relay.CodeQuota:
		return later(http.StatusTooManyRequests, "too many blobs of this sender are pending", time.Minute)
	case relay.CodeStorageFull:
		return later(http.StatusServiceUnavailable, "storage full", time.Minute)
	case relay.CodeDenied:
		return refuse(http.StatusForbidden, "blocked")
	case relay.CodeGoingAway:
		return later(http.StatusServiceUnavailable, "the relay is going away", 10*time.Second)
	case relay.CodeOverloaded:
		return later(http.StatusServiceUnavailable, "the relay is overloaded", 10*time.Second)
	}
	return failed(errors.New("mailbox: refused: " + code.String()))
}

// A message is an answer that is no list of blobs. Its members are plain text.
type message struct {
	Status  string `json:"status,omitempty"`
	Expires string `json:"expires,omitempty"`
	Key     string `json:"key,omitempty"`
	Error   string `json:"error,omitempty"`
}

func (h *handler) respond(w http.ResponseWriter, status int, m message) {
	b, _ := json.Marshal(m) // of strings there is no error
	// An http.Server's own deadline counts from the beginning of the request.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(h.writeTimeout))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

// refuseTo answers with the error that ended a request.
func (h *handler) refuseTo(w http.ResponseWriter, err error) {
	var r *refusal
	if !errors.As(err, &r) {
		r = failed(err)
	}
	if r.err != nil && !errors.Is(r.err, context.Canceled) { // the client went
		h.log.Error("mailbox: a request failed", "err", r.err)
	}
	if r.retryAfter > 0 {
		seconds := int64((r.retryAfter + time.Second - 1) / time.Second)
		w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	h.respond(w, r.status, message{Error: r.sentence})
}
