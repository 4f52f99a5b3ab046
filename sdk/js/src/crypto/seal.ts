// SEALED payloads (spec native.md, "Sealing").

import { type Bytes, concat, isZero, u32, utf8, view } from '../bytes.js';
import { malformed, SottoError } from '../errors.js';
import { frameToSign, decodeSealed } from '../wire/payload.js';
import { Type } from '../wire/frame.js';
import { type Content, decodeContent, encodeContent } from './content.js';
import { decapsulateX25519, encapsulateX25519, kemX25519, kemXWing, openWith, sealWith } from './hpke.js';
import { toMontgomery } from './curve.js';
import type { Identity } from './identity.js';
import { padme } from './padme.js';
import { verify } from './verify.js';
import type { X25519Pair } from './x25519.js';

/** With which key encapsulation a message is sealed: 2 is X25519, 3 is X-Wing. */
export type Suite = 2 | 3;

/** A public key to seal to. Whoever makes one has verified the card that it is from. */
export interface SealKey {
  owner: Bytes; // the recipient's Ed25519 key, checked
  suite: Suite;
  id: Bytes; // 8; zero for the key derived from the identity
  public: Bytes; // 32, or 1216 in suite 3
}

/** The private half of a SealKey. */
export interface OpenKey {
  suite: Suite;
  id: Bytes;
  pair?: X25519Pair; // suite 2
  seed?: Bytes; // suite 3
}

/** Returns the key derived from a checked Ed25519 key: to seal to somebody of whom nothing else is known. */
export function derivedSealKey(owner: Bytes): SealKey {
  return { owner, suite: 2, id: new Uint8Array(8), public: toMontgomery(owner) };
}

/** Returns the private half of an identity's derived key. */
export function derivedOpenKey(self: Identity): OpenKey {
  return { suite: 2, id: new Uint8Array(8), pair: self.derived };
}

/** Returns the payload of a SEALED frame with that message id, and the signature for its header. */
export async function seal(
  from: Identity, to: SealKey, id: Bytes, content: Content,
): Promise<{ payload: Bytes; signature: Bytes }> {
  const info = sealInfo(to.suite, from.public, to.owner, id);
  const plaintext = pad(content);
  const { secret, enc } = await encapsulate(to);
  const ciphertext = await sealWith(kemOf(to.suite), secret, info, plaintext);
  const payload = concat(to.owner, Uint8Array.of(to.suite), to.id, enc, ciphertext);
  return { payload, signature: await from.sign(frameToSign(Type.sealed, id, payload)) };
}

/**
 * Opens the payload of a SEALED frame from sender to self with the one of the keys that
 * it is sealed to, after its signature was found to hold.
 */
export async function openSealed(
  self: Bytes, sender: Bytes, id: Bytes, signature: Bytes, payload: Bytes, keys: OpenKey[],
): Promise<Content> {
  const sealed = decodeSealed(payload);
  await verify(sender, frameToSign(Type.sealed, id, payload), signature);
  const isFor = (k: OpenKey) => k.suite === sealed.suite && k.id.every((x, i) => x === sealed.keyID[i]);
  const key = self.every((x, i) => x === sealed.recipient[i]) ? keys.find(isFor) : undefined;
  if (key === undefined) throw new SottoError('unknown-key', 'sealed to a key that we do not have');
  const secret = await decapsulate(key, sealed.enc);
  const info = sealInfo(key.suite, sender, self, id);
  return unpad(await openWith(kemOf(key.suite), secret, info, sealed.ciphertext));
}

const kemOf = (suite: Suite) => (suite === 3 ? kemXWing : kemX25519);

async function encapsulate(to: SealKey): Promise<{ secret: Uint8Array; enc: Bytes }> {
  if (to.suite === 2) return encapsulateX25519(to.public);
  return (await import('./xwing.js')).encapsulate(to.public);
}

async function decapsulate(key: OpenKey, enc: Bytes): Promise<Uint8Array> {
  if (key.suite === 3) return (await import('./xwing.js')).decapsulate(key.seed!, enc);
  try {
    return await decapsulateX25519(key.pair!, enc);
  } catch {
    throw new SottoError('unopened', 'encapsulated with a weak key');
  }
}

function sealInfo(suite: Suite, sender: Bytes, recipient: Bytes, id: Bytes): Bytes {
  return concat(utf8('sotto seal v1\x00'), Uint8Array.of(suite), sender, recipient, id);
}

/** Returns u32 n ‖ content ‖ zeros, up to a Padmé length. */
export function pad(c: Content): Bytes {
  const content = encodeContent(c);
  const b = new Uint8Array(padme(4 + content.length));
  b.set(u32(content.length));
  b.set(content, 4);
  return b;
}

/** Returns the content in what pad made. */
export function unpad(b: Bytes): Content {
  if (b.length < 4 || b.length !== padme(b.length)) throw malformed('not padded');
  const end = 4 + view(b).getUint32(0);
  if (end > b.length || !isZero(b.subarray(end))) throw malformed('not padded with zeros');
  return decodeContent(b.subarray(4, end));
}
