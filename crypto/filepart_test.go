package crypto

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	transferHex = "0123456789abcdef"
	sumHex      = "00000000000000000000000000000000000000000000000000000000000000ff"
	headerJSON  = `{"name":"a.txt","size":5,"sha256":"` + sumHex + `"}`
	partZero    = transferHex + "\x00\x00\x00\x00\x01" + "\x00\x65" + headerJSON + "hello"
)

func TestTransferPartRoundTrip(t *testing.T) {
	require.Len(t, headerJSON, 0x65)
	id := [16]byte([]byte(transferHex))
	header := &TransferHeader{Name: "a.txt", Size: 5, SHA256: [32]byte{31: 0xff}}
	full := strings.Repeat("x", MaxPartSize)
	for wire, p := range map[string]TransferPart{
		partZero:                                    {Transfer: id, Last: true, Header: header, Data: []byte("hello")},
		transferHex + "\x00\x00\x00\x01\x00some":    {Transfer: id, Index: 1, Data: []byte("some")},
		transferHex + "\xff\xff\xff\xff\x01":        {Transfer: id, Index: 1<<32 - 1, Last: true, Data: []byte{}},
		transferHex + "\x00\x00\x01\x00\x00" + full: {Transfer: id, Index: 256, Data: []byte(full)},
	} {
		c, err := p.Content()
		require.NoError(t, err)
		require.Equal(t, FilePart, c.Type)
		require.Equal(t, wire, string(c.Data))
		got, err := ParseTransferPart(c.Data)
		require.NoError(t, err)
		require.Equal(t, p, got)
	}
}

func TestTransferPartRefused(t *testing.T) {
	head := transferHex + "\x00\x00\x00\x00\x00"
	withHeader := func(json string) string {
		return head + string([]byte{byte(len(json) >> 8), byte(len(json))}) + json
	}
	wires := map[string]string{
		"empty":              "",
		"short":              transferHex + "\x00\x00\x00\x01",
		"flag":               transferHex + "\x00\x00\x00\x01\x02",
		"more than 256 KiB":  transferHex + "\x00\x00\x00\x01\x00" + strings.Repeat("x", MaxPartSize+1),
		"no header":          head,
		"half a length":      head + "\x00",
		"header cut":         partZero[:len(head)+2+50],
		"header with a tail": withHeader(headerJSON + "x"),
		"no JSON":            withHeader("hello"),
		"null":               withHeader("null"),
		"not UTF-8":          withHeader(strings.Replace(headerJSON, "a.txt", "a\xff", 1)),
	}
	for old, changes := range map[string][]string{
		`"a.txt"`:          {`""`, `"../a"`, `"a/b"`, `"a\u0000"`, `"nul"`, `1`, `null`, `"` + strings.Repeat("n", 256) + `"`},
		`5`:                {`-1`, `"5"`, `5.5`, `1e3`, `null`, `1125899906580481`, `9223372036854775808`},
		`"` + sumHex + `"`: {`""`, `null`, `"` + sumHex[2:] + `"`, `"` + sumHex + `00"`, `"` + sumHex[1:] + `g"`},
		`"name"`:           {`"Name"`},
		`"size"`:           {`"SIZE"`},
		`"sha256"`:         {`"sha-256"`},
	} {
		for _, change := range changes {
			wires[old+" is "+change] = withHeader(strings.Replace(headerJSON, old, change, 1))
		}
	}
	for name, wire := range wires {
		_, err := ParseTransferPart([]byte(wire))
		require.ErrorIs(t, err, ErrMalformed, name)
	}
	_, err := ParseTransferPart([]byte(withHeader(strings.Replace(headerJSON, `5`, `1125899906580480,"more":[]`, 1))))
	require.NoError(t, err, "the largest size, and a member of later versions")

	for name, p := range map[string]TransferPart{
		"0 without header":  {},
		"header elsewhere":  {Index: 1, Header: &TransferHeader{Name: "a"}},
		"name":              {Header: &TransferHeader{Name: "a/b"}},
		"size":              {Header: &TransferHeader{Name: "a", Size: MaxTransferSize + 1}},
		"too long":          {Index: 1, Data: make([]byte, MaxPartSize+1)},
		"too long a part 0": {Header: &TransferHeader{Name: "a"}, Data: make([]byte, MaxPartSize)},
	} {
		_, err := p.Content()
		require.ErrorIs(t, err, ErrMalformed, name)
	}
}

func TestTransferControl(t *testing.T) {
	id := [16]byte([]byte(transferHex))
	for wire, c := range map[string]TransferControl{
		transferHex + "\x01":                 {Transfer: id, Op: TransferAccept},
		transferHex + "\x02\x00\x00\x01\x02": {Transfer: id, Op: TransferHave, Have: 258},
		transferHex + "\x03":                 {Transfer: id, Op: TransferCancel},
	} {
		content := c.Content()
		require.Equal(t, FileControl, content.Type)
		require.Equal(t, wire, string(content.Data))
		got, err := ParseTransferControl([]byte(wire))
		require.NoError(t, err)
		require.Equal(t, c, got)
	}
	for _, wire := range []string{
		"", transferHex, transferHex + "\x00", transferHex + "\x04", transferHex + "\x01\x00", transferHex + "\x03\x00\x00\x00\x00",
		transferHex + "\x02", transferHex + "\x02\x00\x00\x01", transferHex + "\x02\x00\x00\x00\x00\x01",
	} {
		_, err := ParseTransferControl([]byte(wire))
		require.ErrorIs(t, err, ErrMalformed, "%q", wire)
	}
}

func FuzzParseTransferPart(f *testing.F) {
	f.Add([]byte(partZero))
	f.Add([]byte(transferHex + "\x00\x00\x00\x01\x00some"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParseTransferPart(b)
		if err != nil {
			return
		}
		require.Equal(t, p.Index == 0, p.Header != nil)
		require.True(t, bytes.HasSuffix(b, p.Data))
		c, err := p.Content()
		if p.Header != nil && err != nil { // its header can be longer as we write it
			require.Greater(t, len(p.Data)+600, MaxPartSize)
			return
		}
		require.NoError(t, err)
		again, err := ParseTransferPart(c.Data)
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
}

func FuzzParseTransferControl(f *testing.F) {
	f.Add([]byte(transferHex + "\x01"))
	f.Add([]byte(transferHex + "\x02\x00\x00\x00\x07"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := ParseTransferControl(b); err == nil {
			require.Equal(t, b, c.Content().Data)
		}
	})
}
