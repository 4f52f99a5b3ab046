package frame

import "strconv"

// MaxRequest bounds the payload of a REQUEST frame in bytes, as spec json.md bounds
// its messages.
const MaxRequest = 64 << 10

// AppendResponse appends the payload of a RESPONSE frame that answers request
// number req (spec native.md, "Frame types"): an answer of the json dialect with
// "req" and "ok":true in it. answer is what one of the Append functions for those
// made, such as AppendSubscribed.
func AppendResponse(dst []byte, req int64, answer []byte) []byte {
	dst = append(dst, answer[:len(answer)-1]...)
	dst = strconv.AppendInt(append(dst, `,"req":`...), req, 10)
	return append(dst, `,"ok":true}`...)
}

// AppendRefusal appends the payload of a RESPONSE frame that refuses request
// number req: {"req":N,"ok":false,"code":…,"msg":…}.
func AppendRefusal(dst []byte, req int64, code Code, msg string) []byte {
	dst = strconv.AppendInt(append(dst, `{"req":`...), req, 10)
	dst = AppendText(append(dst, `,"ok":false,"code":`...), code.String())
	return appendNamed(dst, `,"msg":`, msg)
}

// AppendRequest appends the payload of a REQUEST frame: body, an object of spec
// json.md with at least one member, and in it "req" with the number req.
func AppendRequest(dst []byte, req int64, body []byte) []byte {
	dst = append(dst, body[:len(body)-1]...)
	return append(strconv.AppendInt(append(dst, `,"req":`...), req, 10), '}')
}

// A Response is the payload of a RESPONSE frame, as a client reads it.
type Response struct {
	Req     int64  // the number of the request that it answers; zero: it comes unasked
	Type    string // "t"; empty if it refuses
	Refused bool
	Code    Code   // why it refuses; zero if the name of the code is not known here
	Reason  string // likewise, in the relay's words, UTF-8, possibly empty
	Payload []byte // all of it: an object, valid as [Object] says

	fields Object
}

var errResponse = malformed("not a response")

// DecodeResponse decodes such a payload, which the result aliases. It is
// ErrMalformed what is no object, answers a request without saying whether it was
// done, or comes unasked without a type.
func DecodeResponse(b []byte) (*Response, error) {
	r := &Response{Payload: b}
	if err := r.fields.Parse(b); err != nil {
		return nil, err
	}
	r.Type = r.Text("t")
	req := r.fields.Get("req")
	if req == nil {
		if r.Type == "" {
			return nil, errResponse
		}
		return r, nil
	}
	done, ok := r.fields.Get("ok").Bool()
	var err error
	if r.Req, err = strconv.ParseInt(string(req), 10, 64); err != nil || r.Req < 1 || !ok {
		return nil, errResponse
	}
	if !done {
		r.Refused, r.Type = true, ""
		r.Code, r.Reason = CodeOf(r.Text("code")), r.Text("msg")
	}
	return r, nil
}

// Text returns the string that a member is, empty if it is none.
func (r *Response) Text(name string) string { return string(r.fields.Text(r.fields.Get(name))) }

// Int returns the integer that a member is, zero if it is none, or does not fit.
func (r *Response) Int(name string) int {
	n, err := strconv.Atoi(string(r.fields.Get(name)))
	if err != nil {
		return 0
	}
	return n
}

// The answers that only extended sessions get.

// AppendDone appends {"t":…}: the answer to a verb that has nothing to say.
func AppendDone(dst []byte, verb string) []byte { return appendNamed(dst, `{"t":`, verb) }

// AppendCard appends {"t":"get_card","card":…}. The card is in base64.
func AppendCard(dst []byte, card string) []byte {
	return appendNamed(dst, `{"t":"get_card","card":`, card)
}

// AppendGap appends {"t":"gap","topic":…}, the topic being a filter: publications
// that it matches were dropped.
func AppendGap(dst []byte, filter string) []byte {
	return appendNamed(dst, `{"t":"gap","topic":`, filter)
}
