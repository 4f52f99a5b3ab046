package crypto

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"unicode/utf8"
)

// The contents that carry a large file (native.md, "Sealing" and "Files"). They
// occur in SEALED only.
const (
	FilePart    ContentType = 4 // see [TransferPart]
	FileControl ContentType = 5 // see [TransferControl]
)

const (
	// MaxPartSize is how many bytes a part has at most, the header of the first
	// among them.
	MaxPartSize = 256 << 10

	// MaxTransferSize is the size of the largest file: indexes end there.
	MaxTransferSize = math.MaxUint32 * MaxPartSize
)

// A TransferPart is some of a file: the transfer (16), the index of the part (4,
// big-endian, from 0), flags (1; bit 0: the last part), and the bytes. Those of
// part 0 begin with the length (2) and the text of the header, a JSON object:
//
//	{"name":"a.txt","size":5,"sha256":"<64 hex digits>"}
//
// Other members are passed over.
type TransferPart struct {
	Transfer [16]byte // random; of the sender's choice
	Index    uint32
	Last     bool
	Header   *TransferHeader // of part 0, otherwise nil
	Data     []byte          // of the file
}

// A TransferHeader says what a file is.
type TransferHeader struct {
	Name   string // [SafeFileName] holds
	Size   int64  // in bytes, at most MaxTransferSize
	SHA256 [32]byte
}

// A TransferControl is the answer to parts, or the end of a transfer from either
// side: the transfer (16), the operation (1), and for TransferHave the index (4).
type TransferControl struct {
	Transfer [16]byte
	Op       TransferOp
	Have     uint32 // for TransferHave, otherwise zero
}

// A TransferOp is what a TransferControl says.
type TransferOp uint8

const (
	TransferAccept TransferOp = 1 // the file may come
	TransferHave   TransferOp = 2 // the parts up to Have, and that one, have come
	TransferCancel TransferOp = 3 // the transfer is over
)

const (
	partHead    = 16 + 4 + 1
	partLast    = 1
	controlHead = 16 + 1
)

// The JSON of a header.
type headerText struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Content returns the part as what is sealed. A part that [ParseTransferPart]
// would refuse is [ErrMalformed].
func (p *TransferPart) Content() (Content, error) {
	b := make([]byte, 0, partHead+len(p.Data)+512)
	b = append(b, p.Transfer[:]...)
	b = binary.BigEndian.AppendUint32(b, p.Index)
	var flags byte
	if p.Last {
		flags = partLast
	}
	b = append(b, flags)
	if h := p.Header; h != nil {
		text, err := json.Marshal(headerText{h.Name, h.Size, hex.EncodeToString(h.SHA256[:])})
		if err != nil || len(text) > math.MaxUint16 {
			return Content{}, ErrMalformed
		}
		b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
		b = append(b, text...)
	}
	b = append(b, p.Data...)
	if (p.Header != nil) != (p.Index == 0) || len(b)-partHead > MaxPartSize || p.Header != nil && !p.Header.isValid() {
		return Content{}, ErrMalformed
	}
	return Content{Type: FilePart, Data: b}, nil
}

// ParseTransferPart reads the Data of a Content of type FilePart. The part's Data
// is a piece of it. Unknown flags, too many bytes, and a header that is none, has
// a name that is not safe or a size that cannot be are [ErrMalformed].
func ParseTransferPart(b []byte) (TransferPart, error) {
	if len(b) < partHead || len(b)-partHead > MaxPartSize || b[partHead-1]&^partLast != 0 {
		return TransferPart{}, ErrMalformed
	}
	p := TransferPart{
		Transfer: [16]byte(b),
		Index:    binary.BigEndian.Uint32(b[16:]),
		Last:     b[partHead-1] == partLast,
		Data:     b[partHead:],
	}
	if p.Index > 0 {
		return p, nil
	}
	if len(p.Data) < 2 || len(p.Data) < 2+int(binary.BigEndian.Uint16(p.Data)) {
		return TransferPart{}, ErrMalformed
	}
	n := 2 + int(binary.BigEndian.Uint16(p.Data))
	h, err := parseTransferHeader(p.Data[2:n])
	if err != nil {
		return TransferPart{}, err
	}
	p.Header, p.Data = h, p.Data[n:]
	return p, nil
}

func parseTransferHeader(text []byte) (*TransferHeader, error) {
	// A map, as names would match in any case in a struct.
	var members map[string]json.RawMessage
	if !utf8.Valid(text) || json.Unmarshal(text, &members) != nil {
		return nil, ErrMalformed
	}
	h := TransferHeader{Size: -1} // so that null is no size
	var sum string
	for name, v := range map[string]any{"name": &h.Name, "size": &h.Size, "sha256": &sum} {
		if json.Unmarshal(members[name], v) != nil {
			return nil, ErrMalformed
		}
	}
	b, err := hex.DecodeString(sum)
	if err != nil || len(b) != len(h.SHA256) || !h.isValid() {
		return nil, ErrMalformed
	}
	h.SHA256 = [32]byte(b)
	return &h, nil
}

func (h *TransferHeader) isValid() bool {
	return SafeFileName(h.Name) && h.Size >= 0 && h.Size <= MaxTransferSize
}

// Content returns the control as what is sealed.
func (c TransferControl) Content() Content {
	b := append(make([]byte, 0, controlHead+4), c.Transfer[:]...)
	b = append(b, byte(c.Op))
	if c.Op == TransferHave {
		b = binary.BigEndian.AppendUint32(b, c.Have)
	}
	return Content{Type: FileControl, Data: b}
}

// ParseTransferControl reads the Data of a Content of type FileControl. An unknown
// operation and a wrong length are [ErrMalformed].
func ParseTransferControl(b []byte) (TransferControl, error) {
	if len(b) < controlHead {
		return TransferControl{}, ErrMalformed
	}
	c := TransferControl{Transfer: [16]byte(b), Op: TransferOp(b[16])}
	rest := b[controlHead:]
	switch {
	case c.Op == TransferHave && len(rest) == 4:
		c.Have = binary.BigEndian.Uint32(rest)
	case (c.Op == TransferAccept || c.Op == TransferCancel) && len(rest) == 0:
	default:
		return TransferControl{}, ErrMalformed
	}
	return c, nil
}
