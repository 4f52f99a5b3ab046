// Cards: an identity's word on which keys to seal to it with (spec native.md,
// "Sealing").
//
//   01 ‖ identity 32 ‖ serial u64 ‖ not-before u64 ms ‖ not-after u64 ms ‖ X25519 32 ‖
//   X-Wing 1216 ‖ Ed25519 64 over a label and all before

import { type Bytes, concat, random, sha256, u64, utf8, view } from '../bytes.js';
import { malformed, SottoError } from '../errors.js';
import { isReduced } from './curve.js';
import type { Identity } from './identity.js';
import type { OpenKey, SealKey, Suite } from './seal.js';
import { verify } from './verify.js';
import { importPair } from './x25519.js';

const signedSize = 1 + 32 + 3 * 8 + 32 + 1216;
const cardSize = signedSize + 64;

/** The longest that a card may be valid for, in ms. */
export const maxCardLife = 90 * 24 * 3600 * 1000;

/** A card that was verified. Whether it is valid by now, and the newest, is for others to see. */
export interface Card {
  identity: Bytes;
  serial: bigint;
  notBefore: number; // ms since 1970
  notAfter: number;
  id: Bytes; // 8: the key id
  x25519: Bytes;
  xwing: Bytes;
  encoded: Bytes;
}

/** Reads a card and verifies it: whoever made it holds the identity's secret key. */
export async function decodeCard(bytes: Bytes): Promise<Card> {
  if (bytes.length !== cardSize || bytes[0] !== 1) throw malformed('not a card');
  const encoded = bytes.slice();
  const identity = encoded.subarray(1, 33);
  await verify(identity, cardToSign(encoded), encoded.subarray(signedSize));
  const from = view(encoded).getBigUint64(41);
  const to = view(encoded).getBigUint64(49);
  if (from > to || to - from > BigInt(maxCardLife) || to > BigInt(Number.MAX_SAFE_INTEGER)) {
    throw malformed('a card that is never valid, or for too long');
  }
  const x25519 = encoded.subarray(57, 89);
  if (!isReduced(x25519)) throw new SottoError('weak-key', 'X25519 key of a card');
  return {
    identity,
    serial: view(encoded).getBigUint64(33),
    notBefore: Number(from),
    notAfter: Number(to),
    id: (await sha256(encoded)).slice(0, 8),
    x25519,
    xwing: encoded.subarray(89, signedSize),
    encoded,
  };
}

function cardToSign(card: Bytes): Bytes {
  return concat(utf8('sotto card v1\x00'), card.subarray(0, signedSize));
}

/** Returns the key of a suite in a card. */
export function sealKeyOf(card: Card, suite: Suite): SealKey {
  return { owner: card.identity, suite, id: card.id, public: suite === 3 ? card.xwing : card.x25519 };
}

/** The secret halves of a card's keys: X25519 private key 32 ‖ X-Wing seed 32. */
export type CardSecret = Bytes;

/** Returns new random secrets. */
export function newCardSecret(): CardSecret {
  return random(64);
}

/** Signs a card. Times are in ms. */
export async function newCard(
  self: Identity, serial: bigint, notBefore: number, notAfter: number, secret: CardSecret,
): Promise<Card> {
  const x25519 = await importPair('X25519', secret.slice(0, 32), false);
  const xwing = (await import('./xwing.js')).publicKey(secret.slice(32));
  const signed = concat(
    Uint8Array.of(1), self.public, u64(serial), u64(BigInt(notBefore)), u64(BigInt(notAfter)), x25519.public, xwing,
  );
  return decodeCard(concat(signed, await self.sign(cardToSign(signed))));
}

/** Returns the keys to open what is sealed to a card. */
export async function openKeysOf(card: Card, secret: CardSecret): Promise<OpenKey[]> {
  return [
    { suite: 3, id: card.id, seed: secret.slice(32) },
    { suite: 2, id: card.id, pair: await importPair('X25519', secret.slice(0, 32), false) },
  ];
}
