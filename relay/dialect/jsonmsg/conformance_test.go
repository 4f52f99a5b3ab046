package jsonmsg_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/sotto-relay/sotto/relay/dialect/jsonmsg"
	"github.com/sotto-relay/sotto/relay/relaytest"
	"github.com/sotto-relay/sotto/transport"
)

// TestConformance: the dialect does what a server counts on.
func TestConformance(t *testing.T) {
	relaytest.TestDialect(t, relaytest.DialectConfig{
		Dialect: jsonmsg.Dialect{},
		Login: func(c transport.Conn, name string) error {
			msg := fmt.Appendf(nil, `{"t":"register","addr":%q}`, name)
			if _, err := c.Write(transport.Text, [][]byte{msg}); err != nil {
				return err
			}
			for { // the backlog comes first
				_, msg, err := c.Read()
				if err != nil || bytes.HasPrefix(msg, []byte(`{"t":"registered"`)) {
					return err
				}
			}
		},
		Message: func(_, to, text string) (transport.Kind, []byte) {
			return transport.Text, fmt.Appendf(nil, `{"t":"send","to":%q,"ct":%q}`, to, text)
		},
		Text: func(_ transport.Kind, msg []byte) (string, bool) {
			var m struct{ T, CT string }
			err := json.Unmarshal(msg, &m)
			return m.CT, err == nil && m.T == "deliver"
		},
	})
}
