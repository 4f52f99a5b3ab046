package brep

import (
	"encoding/json"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
)

// maxRequest bounds a REQUEST in bytes, as spec json.md bounds its messages.
const maxRequest = 64 << 10

// A response is the payload of a RESPONSE (spec native.md, "Frame types").
type response struct {
	Verb string `json:"t,omitempty"`
	Req  int64  `json:"req"`
	OK   bool   `json:"ok"`
	Code string `json:"code,omitempty"`
	Msg  string `json:"msg,omitempty"`
}

// request answers a REQUEST. The one verb yet is "auth", which renews the
// authorization of the session with a token.
func (s *session) request(f *frame.Brep) {
	var q struct {
		Verb  string `json:"t"`
		Req   int64  `json:"req"`
		Token string `json:"token"`
	}
	switch {
	case len(f.Payload) > maxRequest:
		s.replyError(f.ID, relay.CodeTooLarge, "request too large")
		return
	case json.Unmarshal(f.Payload, &q) != nil || q.Req < 1:
		s.replyError(f.ID, relay.CodeMalformed, "not a request")
		return
	}
	var err error = &relay.Refusal{Code: relay.CodeUnknownVerb}
	if q.Verb == "auth" {
		err = s.port.Renew(q.Token)
	}
	resp := response{Verb: q.Verb, Req: q.Req, OK: err == nil}
	if err != nil {
		r := relay.AsRefusal(err)
		resp = response{Req: q.Req, Code: r.Code.String(), Msg: r.Sentence()}
	}
	payload, err := json.Marshal(resp)
	if err != nil {
		s.replyError(f.ID, relay.CodeInternal, relay.CodeInternal.String())
		return
	}
	s.reply(frame.TypeResponse, 0, payload)
}
