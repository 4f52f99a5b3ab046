package frame

// A Type is the type byte of a brep frame. Values that are not listed here may
// appear in a decoded frame: a legacy session closes on them, an extended one
// ignores and counts them.
type Type uint8

// Frame types. c is a client, r a relay. The types up to 5 are those of every
// brep peer (spec brep.md), those from 0x10 up exist between extended sessions
// only (spec native.md). Integers are big-endian.
//
//	type                 from  payload
//	0x01 HANDSHAKE       both  by step of the handshake: challenge 32; answer 32 (v1) or 97 (v2); confirmation 1 (v1) or 5 (v2)
//	0x02 DATA            both  recipient 32 ‖ content
//	0x03 NODE_INFO       both  subtype u8 ‖ by subtype, see NodeInfo
//	0x04 SIGNED_DATA     both  recipient 32 ‖ signature 64 ‖ content (or recipient 32 ‖ content)
//	0x05 ENCRYPTED_DATA  both  recipient 32 ‖ ephemeral X25519 key 32 ‖ nonce 12 ‖ AES-256-GCM ciphertext
//	0x10 REQUEST         c→r   a JSON object
//	0x11 RESPONSE        r→c   a JSON object
//	0x12 PUBLISH         c→r   topic length u16 ‖ topic ‖ content
//	0x13 MESSAGE         r→c   as PUBLISH; signed as PUBLISH
//	0x14 ROOM_SEND       c→r   room length u16 ‖ room ‖ content
//	0x15 ROOM_MESSAGE    r→c   as ROOM_SEND; signed as ROOM_SEND
//	0x16 RECEIPT         r→c   see Receipt
//	0x17 ACK             c→r   n × (sender 32 ‖ id 16 ‖ signature 64, or zero)
//	0x18 ERROR           r→c   see Error
//	0x19 PING            both  8 opaque bytes
//	0x1A PONG            both  the 8 bytes of the PING
//	0x1B GOAWAY          r→c   see GoAway
//	0x1C SEALED          c→c   recipient 32 ‖ suite u8 ‖ key id 8 ‖ enc 32 or 1120 ‖ ciphertext
//	0x20 to 0x26         r→r   see mesh.go
const (
	TypeHandshake     Type = 0x01
	TypeData          Type = 0x02
	TypeNodeInfo      Type = 0x03
	TypeSignedData    Type = 0x04
	TypeEncryptedData Type = 0x05

	TypeRequest     Type = 0x10
	TypeResponse    Type = 0x11
	TypePublish     Type = 0x12
	TypeMessage     Type = 0x13
	TypeRoomSend    Type = 0x14
	TypeRoomMessage Type = 0x15
	TypeReceipt     Type = 0x16
	TypeAck         Type = 0x17
	TypeError       Type = 0x18
	TypePing        Type = 0x19
	TypePong        Type = 0x1A
	TypeGoAway      Type = 0x1B
	TypeSealed      Type = 0x1C

	TypeHere  Type = 0x20
	TypeWhere Type = 0x21
	TypeAt    Type = 0x22
	TypeMail  Type = 0x23
	TypeFetch Type = 0x24
	TypeEntry Type = 0x25
	TypeDone  Type = 0x26
)

// Forms of a brep message that a relay holds: whether flags and id are those of an
// extended session, as on a link between relays, or as a legacy peer sent them
// (spec brep.md, "Byte for byte"). They are stored with messages, so a number never
// gets another meaning.
const (
	FormLegacy   uint8 = 0
	FormExtended uint8 = 1
)

// Header flags of frames between extended sessions (spec native.md, "Header
// fields").
const (
	FlagReceipt   = 1 << 0   // the sender wants a receipt
	FlagEphemeral = 1 << 1   // never to be stored
	FlagRetain    = 1 << 2   // to be retained, or sent because it was
	FlagHops      = 0xf << 4 // how many relay links the frame has crossed; at 15 it goes no further

	FlagErrorID = 1 << 0 // of an ERROR frame: the payload ends with an id
)
