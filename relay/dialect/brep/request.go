package brep

import (
	"encoding/json"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
)

// maxRequest bounds a REQUEST in bytes, as spec json.md bounds its messages.
const maxRequest = 64 << 10

// A response is the payload of a RESPONSE that refuses (spec native.md, "Frame
// types").
type response struct {
	Req  int64  `json:"req"`
	OK   bool   `json:"ok"`
	Code string `json:"code"`
	Msg  string `json:"msg"`
}

// request answers a REQUEST. There are no verbs, but a client waits.
func (s *session) request(f *frame.Brep) {
	var q struct {
		Req int64 `json:"req"`
	}
	switch {
	case len(f.Payload) > maxRequest:
		s.replyError(f.ID, relay.CodeTooLarge, "request too large")
		return
	case json.Unmarshal(f.Payload, &q) != nil || q.Req < 1:
		s.replyError(f.ID, relay.CodeMalformed, "not a request")
		return
	}
	code := relay.CodeUnknownVerb.String()
	payload, err := json.Marshal(response{Req: q.Req, Code: code, Msg: code})
	if err != nil {
		s.replyError(f.ID, relay.CodeInternal, relay.CodeInternal.String())
		return
	}
	s.reply(frame.TypeResponse, 0, payload)
}
