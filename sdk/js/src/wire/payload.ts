// The payloads of extended sessions (spec native.md, "Frame types"), but for those
// that are sealed or JSON. What is too long, too short or not UTF-8 is malformed as
// a whole. Integers are big-endian.

import { type Bytes, concat, fromUTF8, isZero, u16, utf8, view } from '../bytes.js';
import { type RelayCode, malformed, relayCode } from '../errors.js';
import { Flag } from './frame.js';

/** How far a message has come. All but acknowledged are the relay's word. */
export const ReceiptStatus = { handed: 1, stored: 2, acknowledged: 3, refused: 4, expired: 5 } as const;

/** A RECEIPT: id 16 ‖ status u8 ‖ what the status says. */
export interface ReceiptPayload {
  id: Bytes;
  status: number; // one of ReceiptStatus
  recipient?: Bytes; // acknowledged: by whom, not checked
  signature?: Bytes; // acknowledged: the proof, not checked
  code?: RelayCode; // refused, expired
  reason?: string; // refused, expired
}

export function decodeReceipt(b: Bytes): ReceiptPayload {
  if (b.length < 17) throw malformed('RECEIPT is too short');
  const r: ReceiptPayload = { id: b.subarray(0, 16), status: b[16]! };
  const rest = b.subarray(17);
  switch (r.status) {
    case ReceiptStatus.handed:
    case ReceiptStatus.stored:
      if (rest.length !== 0) throw malformed('RECEIPT is longer than its status');
      return r;
    case ReceiptStatus.acknowledged:
      if (rest.length !== 96) throw malformed('RECEIPT is longer or shorter than its status');
      return { ...r, recipient: rest.subarray(0, 32), signature: rest.subarray(32) };
    case ReceiptStatus.refused:
    case ReceiptStatus.expired:
      return { ...r, ...decodeRefusal(rest, 'RECEIPT') };
  }
  throw malformed('unknown RECEIPT status');
}

/** Decodes code u16 ‖ reason UTF-8. */
function decodeRefusal(b: Bytes, what: string): { code: RelayCode; reason: string } {
  if (b.length < 2) throw malformed(`${what} is too short`);
  const reason = fromUTF8(b.subarray(2));
  if (reason === undefined) throw malformed(`reason of ${what} is not UTF-8`);
  return { code: relayCode(view(b).getUint16(0)), reason };
}

/** An ERROR: code u16 ‖ sentence UTF-8, and id 16 if the header's flags say so. */
export interface ErrorPayload {
  code: RelayCode;
  reason: string;
  id?: Bytes; // of the frame that caused it
}

export function decodeError(flags: number, b: Bytes): ErrorPayload {
  if ((flags & Flag.errorID) === 0) return decodeRefusal(b, 'ERROR');
  if (b.length < 18) throw malformed('ERROR is too short');
  const id = b.subarray(b.length - 16);
  if (isZero(id)) throw malformed('ERROR announces an id that is zero');
  return { ...decodeRefusal(b.subarray(0, b.length - 16), 'ERROR'), id };
}

/** A GOAWAY: come back after, ms u32 ‖ the address of another relay, or nothing. */
export interface GoAwayPayload {
  after: number; // ms
  address: string;
}

export function decodeGoAway(b: Bytes): GoAwayPayload {
  const address = b.length < 4 ? undefined : fromUTF8(b.subarray(4));
  if (address === undefined) throw malformed('GOAWAY is too short or not UTF-8');
  return { after: view(b).getUint32(0), address };
}

/** PUBLISH, MESSAGE, ROOM_SEND and ROOM_MESSAGE: name length u16 ‖ name ‖ content. */
export interface PublicationPayload {
  name: string; // of a topic or a room
  content: Bytes;
}

export function encodePublication(name: string, content: Uint8Array): Bytes {
  const b = utf8(name);
  if (b.length > 0xffff) throw malformed('name is longer than 65,535 bytes');
  return concat(u16(b.length), b, content);
}

export function decodePublication(b: Bytes): PublicationPayload {
  const end = b.length < 2 ? Infinity : 2 + view(b).getUint16(0);
  const name = end > b.length ? undefined : fromUTF8(b.subarray(2, end));
  if (name === undefined) throw malformed('name of a publication is cut or not UTF-8');
  return { name, content: b.subarray(end) };
}

/** One acknowledgement in an ACK: sender 32 ‖ id 16 ‖ signature 64, zero if no receipt was wanted. */
export function encodeAck(sender: Bytes, id: Bytes, signature: Bytes): Bytes {
  return concat(sender, id, signature);
}

/** What a recipient signs for the sender (spec native.md, "Delivery"). */
export function ackToSign(sender: Uint8Array, id: Uint8Array): Bytes {
  return concat(utf8('sotto ack v1\x00'), sender, id);
}

/** What the signature of a frame covers that is passed on to others: the type is the one it was sent with. */
export function frameToSign(type: number, id: Uint8Array, payload: Uint8Array): Bytes {
  return concat(utf8('sotto frame v1\x00'), Uint8Array.of(type), id, payload);
}

/** A SEALED payload: recipient 32 ‖ suite u8 ‖ key id 8 ‖ enc ‖ ciphertext. */
export interface SealedPayload {
  recipient: Bytes;
  suite: number;
  keyID: Bytes;
  enc: Bytes;
  ciphertext: Bytes;
}

export function decodeSealed(b: Bytes): SealedPayload {
  const encSize = b[32] === 3 ? 1120 : 32;
  if (b.length < 41 + encSize + 16) throw malformed('SEALED is shorter than its suite has it');
  return {
    recipient: b.subarray(0, 32),
    suite: b[32]!,
    keyID: b.subarray(33, 41),
    enc: b.subarray(41, 41 + encSize),
    ciphertext: b.subarray(41 + encSize),
  };
}
