package mailbox

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A realRig has its mailbox on an http.Server on loopback too.
type realRig struct {
	*rig
	addr string
}

func newRealRig(t *testing.T) *realRig {
	r := newRig(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	web := &http.Server{Handler: r.web.Handler, MaxHeaderBytes: 16 << 10, ReadHeaderTimeout: 5 * time.Second, ErrorLog: r.web.ErrorLog}
	go func() { _ = web.Serve(l) }()
	t.Cleanup(func() { _ = web.Close() })
	return &realRig{r, l.Addr().String()}
}

func (r *realRig) dial() net.Conn {
	c, err := net.Dial("tcp", r.addr)
	require.NoError(r.t, err)
	require.NoError(r.t, c.SetDeadline(time.Now().Add(10*time.Second)))
	return c
}

// send sends bytes, and returns the responses that come until the connection is
// closed.
func (r *realRig) send(s string) (all []reply) {
	c := r.dial()
	defer c.Close()
	go func() { _, _ = io.WriteString(c, s) }()
	b, err := io.ReadAll(c) // a reset: not all that was sent has been read
	require.NotErrorIs(r.t, err, os.ErrDeadlineExceeded)
	for br := bufio.NewReader(bytes.NewReader(b)); ; {
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			require.ErrorIs(r.t, err, io.ErrUnexpectedEOF)
			return all
		}
		body, err := io.ReadAll(resp.Body)
		require.NoError(r.t, err)
		if resp.StatusCode != http.StatusContinue {
			all = append(all, reply{resp.StatusCode, resp.Header, string(body)})
		}
	}
}

func statuses(all []reply) (s []int) {
	for _, rep := range all {
		s = append(s, rep.status)
	}
	return s
}

const closing = "Connection: close\r\n"

func post(path, headers, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: relay\r\nContent-Length: %d\r\n%s\r\n%s", path, len(body), headers, body)
}

func get(target, headers string) string {
	return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: relay\r\n%s\r\n", target, headers)
}

// TestBodies: chunked, with Expect, none, and too long, which is not read to its end.
func TestBodies(t *testing.T) {
	r := newRealRig(t)
	body := storeBody(r.alice, r.bob.Public(), `"x"`)
	chunked := fmt.Sprintf("POST /relay/store HTTP/1.1\r\nHost: relay\r\nTransfer-Encoding: chunked\r\n%s\r\n5\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n",
		closing, body[:5], len(body)-5, body[5:])
	assert.Equal(t, []int{http.StatusOK}, statuses(r.send(chunked)))
	assert.Equal(t, []int{http.StatusOK}, statuses(r.send(post("/relay/store", closing+"Expect: 100-continue\r\n", body))))
	assert.Equal(t, []int{http.StatusBadRequest}, statuses(r.send("POST /relay/store HTTP/1.1\r\nHost: relay\r\n"+closing+"\r\n")))
	assert.Equal(t, []int{http.StatusBadRequest}, statuses(r.send(post("/relay/store", closing, ""))))
	assert.Equal(t, []int{http.StatusUnsupportedMediaType}, statuses(r.send(post("/relay/store", closing+"Content-Encoding: gzip\r\n", body))))

	// By its length it is refused at once; without, at the limit. Closed both times.
	all := r.send("POST /relay/store HTTP/1.1\r\nHost: relay\r\nContent-Length: 1000000000\r\n\r\n" + body)
	require.Equal(t, []int{http.StatusRequestEntityTooLarge}, statuses(all))
	c := r.dial()
	defer c.Close()
	refused := make(chan error, 1)
	go func() {
		chunk := "100000\r\n" + strings.Repeat(" ", 1<<20) + "\r\n"
		_, err := io.WriteString(c, "POST /relay/store HTTP/1.1\r\nHost: relay\r\nTransfer-Encoding: chunked\r\n\r\n")
		for err == nil {
			_, err = io.WriteString(c, chunk)
		}
		refused <- err
	}()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	assert.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
	assert.NotErrorIs(t, <-refused, os.ErrDeadlineExceeded, "closed")
	assert.Equal(t, []string{"x"}, r.pending(r.bob))
}

// TestBrokenRequests: what net/http makes of them, with the mailbox behind it.
func TestBrokenRequests(t *testing.T) {
	r := newRealRig(t)
	body := storeBody(r.alice, r.bob.Public(), `"x"`)
	length := fmt.Sprintf("Content-Length: %d\r\n", len(body))
	for name, c := range map[string]struct {
		headers string
		status  int
	}{
		"both lengths":    {length + "Transfer-Encoding: chunked\r\n", http.StatusBadRequest}, // it is not chunked
		"negative":        {"Content-Length: -1\r\n", http.StatusBadRequest},
		"two lengths":     {length + "Content-Length: 1\r\n", http.StatusBadRequest},
		"obs-fold":        {length + "X: a\r\n b\r\n", http.StatusOK}, // unfolded, as RFC 9112 has it
		"space":           {length + "X : a\r\n", http.StatusBadRequest},
		"long header":     {length + "X: " + strings.Repeat("x", 32<<10) + "\r\n", http.StatusRequestHeaderFieldsTooLarge},
		"10,000 headers":  {length + strings.Repeat("X: a\r\n", 10_000), http.StatusRequestHeaderFieldsTooLarge},
		"unknown coding":  {"Transfer-Encoding: x\r\n", http.StatusNotImplemented},
		"line feed alone": {length + "X: a\n", http.StatusOK},
	} {
		all := r.send("POST /relay/store HTTP/1.1\r\nHost: relay\r\n" + closing + c.headers + "\r\n" + body + "\r\n")
		require.NotEmpty(t, all, name)
		assert.Equal(t, c.status, all[0].status, name)
	}
	assert.LessOrEqual(t, len(r.pending(r.bob)), 1)
}

// TestPairing: each answer is that of its request, over HTTP/1.0, after errors, and
// for requests that are sent before the answers have come.
func TestPairing(t *testing.T) {
	r := newRealRig(t)
	r.mustStore(r.alice, r.bob.Public(), "x", "y")
	all := r.send("GET /relay/fetch" + query(r.bob, time.Now()) + "&limit=1 HTTP/1.0\r\n\r\n")
	require.Len(t, all, 1)
	items, more := all[0].list(t)
	assert.Equal(t, []string{"x"}, blobs(items))
	assert.True(t, more)

	key := get("/relay/key", "")
	all = r.send(key + get("/relay/nothing", "") + get("/relay/fetch", "") +
		post("/relay/store", "", `{"recipient":1}`) +
		post("/relay/store", "", storeBody(r.alice, r.bob.Public(), `"z"`)) +
		get("/relay/fetch"+query(r.bob, time.Now().Add(time.Millisecond)), "") + get("/relay/key", closing) + key)
	assert.Equal(t, []int{200, 404, 400, 400, 200, 200, 200}, statuses(all))
	items, _ = all[5].list(t)
	assert.Equal(t, []string{"y", "z"}, blobs(items))
	assert.Equal(t, all[0].body, all[6].body)
}
