package ws

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/internal/stream"
	"github.com/sotto-relay/sotto/transport"
)

// piped returns a server's connection and its client, over a net.Pipe.
func piped() (client net.Conn, server *conn) {
	a, b := net.Pipe()
	o := ConnOptions{}.withDefaults()
	return a, newConn(b, false, &o, new(stream.Pools), nil)
}

func TestConnInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := piped()
		o := ConnOptions{}.withDefaults()
		c := newConn(client, true, &o, new(stream.Pools), nil)
		got := make(chan error, 1)
		go func() {
			_, _, err := server.Read()
			got <- err
		}()
		server.SetReadDeadline(time.Now().Add(time.Minute))
		go c.Read() // answers pings
		begin := time.Now()
		assert.ErrorIs(t, <-got, os.ErrDeadlineExceeded)
		assert.Equal(t, time.Minute, time.Since(begin))
		c.Close(transport.CloseNormal, "")
		_, _, err := server.Read()
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		server.SetReadDeadline(time.Time{})
		_, _, err = server.Read()
		assert.Equal(t, &transport.CloseError{Code: transport.CloseNormal}, err)
	})
}

// TestSilence has a peer that reads all it is sent and says nothing.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := piped()
		begin := time.Now()
		var heard bytes.Buffer
		heardAll := make(chan struct{})
		go func() {
			io.Copy(&heard, client)
			client.Close()
			close(heardAll)
		}()
		go func() { // what we send does not count
			for {
				time.Sleep(time.Second)
				if send(server, transport.Binary, []byte("x")) != nil {
					return
				}
			}
		}()
		_, _, err := server.Read()
		assert.Equal(t, &transport.CloseError{Code: transport.ClosePolicy, Reason: "idle timeout"}, err)
		assert.Equal(t, 75*time.Second, time.Since(begin))
		<-heardAll
		assert.Equal(t, 2, bytes.Count(heard.Bytes(), []byte("\x89\x00")), "pings")
		assert.True(t, bytes.HasSuffix(heard.Bytes(), []byte(closing(1008, "idle timeout"))))
		time.Sleep(2 * time.Second)
	})
}

// TestPongIsLife has a peer that answers pings and does nothing else.
func TestPongIsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := piped()
		go func() {
			ping := make([]byte, 2)
			for range 20 {
				if _, err := io.ReadFull(client, ping); err != nil {
					return
				}
				io.WriteString(client, masked(0x8a, ""))
			}
			io.Copy(io.Discard, client)
		}()
		begin := time.Now()
		_, _, err := server.Read()
		assert.Error(t, err)
		assert.Equal(t, 20*30*time.Second+75*time.Second, time.Since(begin))
		client.Close()
	})
}

// TestMessageTimeout has messages that begin and do not end, a byte in 5 s.
func TestMessageTimeout(t *testing.T) {
	for name, say := range map[string]string{
		"header":        masked(0x82, "hello"),
		"payload":       masked(0x82, "hello, world"),
		"fragments":     masked(2, "a") + masked(0, "b"),
		"control frame": masked(0x89, "hello"),
		"second":        masked(0x82, "x") + masked(0x82, "hello"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := piped()
				go io.Copy(io.Discard, client)
				time.Sleep(20 * time.Second) // nothing limits that
				begin := time.Now()
				go func() {
					if name == "second" {
						io.WriteString(client, say[:7+3])
						say = say[7+3:]
					}
					for i := range say {
						if _, err := io.WriteString(client, say[i:i+1]); err != nil {
							return
						}
						time.Sleep(5 * time.Second)
					}
				}()
				_, _, err := server.Read()
				if name == "second" {
					require.NoError(t, err)
					_, _, err = server.Read()
				}
				assert.Equal(t, &transport.CloseError{Code: transport.ClosePolicy, Reason: "message takes too long"}, err)
				assert.Equal(t, 10*time.Second, time.Since(begin))
				client.Close()
				time.Sleep(time.Minute)
			})
		})
	}
}

// TestMessageTimeoutIsPerMessage has messages that take 8 s each, cut so that
// there is never a moment without one.
func TestMessageTimeoutIsPerMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := piped()
		go func() {
			stream := ""
			for range 10 {
				stream += masked(0x82, "12345678")
			}
			size := len(stream) / 10
			io.WriteString(client, stream[:1])
			for i := 1; i < len(stream); i += size {
				time.Sleep(8 * time.Second)
				io.WriteString(client, stream[i:min(i+size, len(stream))])
			}
		}()
		for range 10 {
			_, b, err := server.Read()
			require.NoError(t, err)
			require.Equal(t, "12345678", string(b))
		}
		server.Close(transport.CloseNormal, "")
		client.Close()
	})
}

// TestReadDeadlineWithin has the user's deadline pass within a message, at every
// place, and reading go on.
func TestReadDeadlineWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		say := masked(2, "ab") + masked(0x89, "p") + masked(0x80, "cd") + masked(0x81, "e")
		for cut := range say {
			client, server := piped()
			go func() {
				io.WriteString(client, say[:cut])
				time.Sleep(3 * time.Second)
				io.WriteString(client, say[cut:])
			}()
			go io.Copy(io.Discard, client)
			var got []string
			for deadlines := 0; len(got) < 2; {
				server.SetReadDeadline(time.Now().Add(time.Second))
				_, b, err := server.Read()
				if errors.Is(err, os.ErrDeadlineExceeded) {
					deadlines++
					require.Less(t, deadlines, 4)
					continue
				}
				require.NoError(t, err)
				got = append(got, string(b))
			}
			assert.Equal(t, []string{"abcd", "e"}, got)
			server.Close(transport.CloseNormal, "")
			time.Sleep(time.Second)
			client.Close()
		}
	})
}

// TestCloseInterrupts closes under a Read and a Write that wait.
func TestCloseInterrupts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := piped()
		begin := time.Now()
		time.AfterFunc(time.Second, func() { server.Close(transport.CloseGoingAway, "") })
		go func() {
			_, _, err := server.Read()
			assert.Equal(t, &transport.CloseError{Code: transport.CloseGoingAway}, err)
			assert.Equal(t, time.Second, time.Since(begin))
		}()
		assert.ErrorIs(t, send(server, transport.Binary, make([]byte, 10*stream.WriteSize)), net.ErrClosed)
		assert.Equal(t, time.Second, time.Since(begin))
		time.Sleep(2 * time.Second)
		client.Close()
	})
}

// TestLinger closes connections to a peer that does not take the close frame.
func TestLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := piped()
		begin := time.Now()
		server.Close(transport.CloseGoingAway, "")
		assert.Zero(t, time.Since(begin))
		time.Sleep(time.Second + time.Millisecond)
		_, err := client.Write([]byte("x"))
		assert.Error(t, err)
	})
}
