package frame

import (
	"encoding/base64"
	"strconv"
	"unicode"
)

// The messages of the json dialect that a relay sends (spec json.md), each an
// Append function. Names are UTF-8 and are written with the escapes that have to
// be; Values are written as they came, and nil ones are left out where the spec
// has them optional. What a relay receives is an [Object].

// MaxName is how long an address, a room or a game may be by default, in bytes.
const MaxName = 128

// IsName reports whether s may name an address of the json dialect, a room or a
// game (spec json.md, "Limits"): 1 to most bytes without control characters. That
// it is UTF-8 is left to whoever parsed it.
func IsName(s string, most int) bool {
	if len(s) == 0 || len(s) > most {
		return false
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return false
		}
	}
	return true
}

// AppendText appends the JSON string that says text, which is UTF-8: with the
// escapes that have to be and no others.
func AppendText[T ~string | ~[]byte](dst []byte, text T) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i := range len(text) {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, text[from:i]...)
		from = i + 1
		if c < ' ' {
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		} else {
			dst = append(dst, '\\', c)
		}
	}
	return append(append(dst, text[from:]...), '"')
}

// appendNamed appends a message that says a name, after its beginning.
func appendNamed(dst []byte, begin, name string) []byte {
	return append(AppendText(append(dst, begin...), name), '}')
}

// optional appends a member that is left out without a value. The name comes with
// the marks around it.
func optional(dst []byte, name string, v Value) []byte {
	if v == nil {
		return dst
	}
	return append(append(dst, name...), v...)
}

// AppendDeliver appends the message that a send becomes:
//
//	{"t":"deliver","from":…,"pub":…,"nonce":…,"ct":…,"id":…}
//
// pub, nonce, ct and id are optional strings.
func AppendDeliver(dst []byte, from string, pub, nonce, ct, id Value) []byte {
	dst = AppendText(append(dst, `{"t":"deliver","from":`...), from)
	dst = optional(dst, `,"pub":`, pub)
	dst = optional(dst, `,"nonce":`, nonce)
	dst = optional(dst, `,"ct":`, ct)
	dst = optional(dst, `,"id":`, id)
	return append(dst, '}')
}

// AppendAck appends the message that an ack becomes: {"t":"ack","id":…,"from":…}.
func AppendAck(dst []byte, id Value, from string) []byte {
	dst = append(append(dst, `{"t":"ack","id":`...), id...)
	return appendNamed(dst, `,"from":`, from)
}

// AppendQueued appends {"t":"queued","to":…,"id":…}; id is optional.
func AppendQueued(dst []byte, to string, id Value) []byte {
	dst = AppendText(append(dst, `{"t":"queued","to":`...), to)
	return append(optional(dst, `,"id":`, id), '}')
}

// AppendError appends {"t":"error","msg":…,"id":…}; id is optional.
func AppendError(dst []byte, msg string, id Value) []byte {
	dst = AppendText(append(dst, `{"t":"error","msg":`...), msg)
	return append(optional(dst, `,"id":`, id), '}')
}

// AppendRegistered appends {"t":"registered","addr":…,"token":…,"queued":N}; the
// token, of sessions in datagrams, is left out when it is empty.
func AppendRegistered(dst []byte, addr, token string, queued int) []byte {
	dst = AppendText(append(dst, `{"t":"registered","addr":`...), addr)
	if token != "" {
		dst = AppendText(append(dst, `,"token":`...), token)
	}
	dst = strconv.AppendInt(append(dst, `,"queued":`...), int64(queued), 10)
	return append(dst, '}')
}

// AppendWaiting appends {"t":"waiting","game":…}.
func AppendWaiting(dst []byte, game string) []byte {
	return appendNamed(dst, `{"t":"waiting","game":`, game)
}

// AppendMatched appends {"t":"matched","game":…,"peer":…}.
func AppendMatched(dst []byte, game, peer string) []byte {
	dst = AppendText(append(dst, `{"t":"matched","game":`...), game)
	return appendNamed(dst, `,"peer":`, peer)
}

// AppendMatchCancelled appends {"t":"match_cancelled","game":…}.
func AppendMatchCancelled(dst []byte, game string) []byte {
	return appendNamed(dst, `{"t":"match_cancelled","game":`, game)
}

// AppendJoinedRoom appends {"t":"joined_room","room":…,"members":N}.
func AppendJoinedRoom(dst []byte, room string, members int) []byte {
	dst = AppendText(append(dst, `{"t":"joined_room","room":`...), room)
	dst = strconv.AppendInt(append(dst, `,"members":`...), int64(members), 10)
	return append(dst, '}')
}

// AppendLeftRoom appends {"t":"left_room","room":…}.
func AppendLeftRoom(dst []byte, room string) []byte {
	return appendNamed(dst, `{"t":"left_room","room":`, room)
}

// AppendRoomDeliver appends the message that a room_send becomes:
// {"t":"room_deliver","room":…,"from":…,"ct":…}.
func AppendRoomDeliver(dst []byte, room, from string, ct Value) []byte {
	dst = AppendText(append(dst, `{"t":"room_deliver","room":`...), room)
	dst = AppendText(append(dst, `,"from":`...), from)
	return append(append(append(dst, `,"ct":`...), ct...), '}')
}

// AppendSubscribed appends {"t":"subscribed","topic":…}, the topic being a filter.
func AppendSubscribed(dst []byte, filter string) []byte {
	return appendNamed(dst, `{"t":"subscribed","topic":`, filter)
}

// AppendUnsubscribed appends {"t":"unsubscribed","topic":…}.
func AppendUnsubscribed(dst []byte, filter string) []byte {
	return appendNamed(dst, `{"t":"unsubscribed","topic":`, filter)
}

const isLive, isRetained = `"retained":false}`, `"retained":true}`

// AppendMessage appends the message that a publish becomes:
// {"t":"message","topic":…,"from":…,"ct":…,"retained":false}.
func AppendMessage(dst []byte, topic, from string, ct Value) []byte {
	dst = AppendText(append(dst, `{"t":"message","topic":`...), topic)
	dst = AppendText(append(dst, `,"from":`...), from)
	return append(append(append(append(dst, `,"ct":`...), ct...), ','), isLive...)
}

// AppendRetained appends what AppendMessage made, with "retained":true.
func AppendRetained(dst, message []byte) []byte {
	return append(append(dst, message[:len(message)-len(isLive)]...), isRetained...)
}

// AppendChallenge appends {"t":"challenge","relay":…,"epk":…,"nonce":…,"box":…},
// all in base64.
func AppendChallenge(dst []byte, relay, epk [32]byte, nonce [24]byte, box []byte) []byte {
	dst = append(dst, `{"t":"challenge","relay":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, relay[:])
	dst = base64.StdEncoding.AppendEncode(append(dst, `","epk":"`...), epk[:])
	dst = base64.StdEncoding.AppendEncode(append(dst, `","nonce":"`...), nonce[:])
	dst = base64.StdEncoding.AppendEncode(append(dst, `","box":"`...), box)
	return append(dst, `"}`...)
}
