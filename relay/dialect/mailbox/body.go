package mailbox

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/sotto-relay/sotto/relay"
)

const (
	bodyOverhead = 64 << 10 // beside a blob: the other fields and white space
	escapeFactor = 6        // a byte of a string may be written as \u00xx
	ackBytes     = 128 << 10
)

// A body is what was read of a request. Its memory counts until free is called.
type body struct {
	data []byte
	free func()
}

var (
	errBodySize = refuse(http.StatusRequestEntityTooLarge, "the body is too large")
	errBodyLate = refuse(http.StatusRequestTimeout, "the body did not come in time")
)

// readBody reads a body of JSON, of at most limit bytes. Memory is taken as bytes
// come in, and counts.
func (h *handler) readBody(w http.ResponseWriter, r *http.Request, limit int64) (body, error) {
	if err := checkContent(r); err != nil {
		return body{}, err
	}
	if r.ContentLength > limit {
		w.Header().Set("Connection", "close") // what is left of it is not read
		return body{}, errBodySize
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(h.limits.ReadyTimeout)) // or else the http.Server's holds
	defer func() { _ = rc.SetReadDeadline(time.Time{}) }()

	src := relay.Source(h.remote(r))
	data, err := h.readAll(http.MaxBytesReader(w, r.Body, limit), src)
	free := func() { h.bodies.giveBack(src, int64(cap(data))) }
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil && len(data) == 0:
		err = malformed("there is no body")
	case errors.As(err, &tooLarge):
		err = errBodySize
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		err = errBodyLate
	case err != nil && !errors.As(err, new(*refusal)):
		err = malformed("the body is not whole") // whoever sent it is probably gone
	}
	if err != nil {
		free()
		return body{}, err
	}
	return body{data, free}, nil
}

// readAll reads until the end. The capacity of what it returns, also with an
// error, has been taken for src.
func (h *handler) readAll(r io.Reader, src netip.Prefix) (data []byte, err error) {
	for {
		if len(data) == cap(data) {
			grown := max(8<<10, 2*cap(data))
			if !h.bodies.take(src, int64(grown-cap(data))) {
				return data, later(http.StatusServiceUnavailable, "too many requests at a time", time.Second)
			}
			data = append(make([]byte, 0, grown), data...)
		}
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if err == io.EOF {
			return data, nil
		}
		if err != nil {
			return data, err
		}
	}
}

// checkContent says whether a body is JSON in UTF-8, as far as the headers tell. A
// request without a type is taken for JSON.
func checkContent(r *http.Request) error {
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return refuse(http.StatusUnsupportedMediaType, "the body is encoded")
	}
	if v := r.Header.Get("Content-Type"); v != "" {
		kind, params, err := mime.ParseMediaType(v)
		charset, has := params["charset"]
		if err != nil || kind != "application/json" || has && !strings.EqualFold(charset, "utf-8") {
			return refuse(http.StatusUnsupportedMediaType, "the body has to be application/json in UTF-8")
		}
	}
	return nil
}
