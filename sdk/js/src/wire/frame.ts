// The header of a brep frame (spec brep.md, "Frame"), which the payload follows.
// Integers are big-endian.
//
//   offset  size  field
//        0     1  magic, 0x58
//        1     1  version, 1
//        2     1  type
//        3     1  flags
//        4     4  payload length
//        8    16  message id
//       24    32  sender, an Ed25519 public key
//       56    64  signature, Ed25519, or zero

import { type Bytes, concat, own, u32, view } from '../bytes.js';
import { SottoError, malformed } from '../errors.js';

export const headerSize = 120;

/** What relays accept by default. */
export const maxPayload = 4 << 20;

/** Frame types; from 0x10 up for extended sessions only (spec native.md, "Frame types"). */
export const Type = {
  handshake: 0x01,
  data: 0x02,
  nodeInfo: 0x03,
  signedData: 0x04,
  encryptedData: 0x05,
  request: 0x10,
  response: 0x11,
  publish: 0x12,
  message: 0x13,
  roomSend: 0x14,
  roomMessage: 0x15,
  receipt: 0x16,
  ack: 0x17,
  error: 0x18,
  ping: 0x19,
  pong: 0x1a,
  goAway: 0x1b,
  sealed: 0x1c,
} as const;

/** Header flags (spec native.md, "Header fields"). */
export const Flag = {
  receipt: 1 << 0, // the sender wants a receipt
  ephemeral: 1 << 1, // never to be stored
  retain: 1 << 2, // to be retained, or sent because it was
  errorID: 1 << 0, // of an ERROR: the payload ends with an id
} as const;

/** One frame. Keys and signatures are not checked. */
export interface Frame {
  type: number;
  flags: number;
  id: Bytes; // 16; zero for none
  sender: Bytes; // 32
  signature: Bytes; // 64; zero when unused
  payload: Bytes;
}

/** Returns a frame; what is not given is zero. */
export function newFrame(type: number, fields: Partial<Frame> = {}): Frame {
  return {
    type,
    flags: 0,
    id: new Uint8Array(16),
    sender: new Uint8Array(32),
    signature: new Uint8Array(64),
    payload: new Uint8Array(0),
    ...fields,
  };
}

/** Encodes a frame. */
export function encodeFrame(f: Frame): Bytes {
  return concat(
    Uint8Array.of(0x58, 1, f.type, f.flags), u32(f.payload.length), f.id, f.sender, f.signature, f.payload,
  );
}

/** Decodes bytes that must be exactly one frame, whose fields then are parts of them. */
export function decodeFrame(bytes: Uint8Array): Frame {
  const b = own(bytes);
  if (b.length > 0 && b[0] !== 0x58) throw malformed('not a brep frame');
  if (b.length > 1 && b[1] !== 1) throw new SottoError('unsupported-version', 'not version 1');
  if (b.length < headerSize) throw malformed('shorter than a brep header');
  if (view(b).getUint32(4) !== b.length - headerSize) throw malformed('payload length is not what follows');
  return {
    type: b[2]!,
    flags: b[3]!,
    id: b.subarray(8, 24),
    sender: b.subarray(24, 56),
    signature: b.subarray(56, 120),
    payload: b.subarray(headerSize),
  };
}

/** Says whether frames of this type carry a message from one client to another. */
export function isLetter(type: number): boolean {
  return type === Type.data || type === Type.signedData || type === Type.encryptedData || type === Type.sealed;
}
