// ENCRYPTED_DATA (spec brep.md), for users of MERK-BREP, whose X25519 key does not
// follow from their identity. It neither hides lengths nor binds the sender.
//
//   recipient 32 ‖ ephemeral X25519 32 ‖ nonce 12 ‖ AES-256-GCM ciphertext

import { type Bytes, concat, equal, random, sha256 } from '../bytes.js';
import { malformed, SottoError } from '../errors.js';
import { type Content, ContentType, decodeContent, encodeContent } from './content.js';
import { openGCM } from './hpke.js';
import type { Identity } from './identity.js';
import { isSigned, verify } from './verify.js';
import { exchange, generateX25519 } from './x25519.js';

const head = 32 + 32 + 12;

/** Returns the payload of an ENCRYPTED_DATA frame, and the signature for its header. */
export async function encrypt(
  from: Identity, to: Bytes, toX25519: Bytes, c: Content,
): Promise<{ payload: Bytes; signature: Bytes }> {
  if (c.type > ContentType.file) throw malformed('content of this type is for SEALED only');
  const ephemeral = await generateX25519();
  const key = await gcmKey(await exchange(ephemeral.private, toX25519));
  const nonce = random(12);
  const ciphertext = await crypto.subtle.encrypt({ name: 'AES-GCM', iv: nonce }, key, encodeContent(c));
  const payload = concat(to, ephemeral.public, nonce, new Uint8Array(ciphertext));
  return { payload, signature: await from.sign(payload) };
}

/** Opens the payload of an ENCRYPTED_DATA frame. The signature may leave the recipient out, as older clients do. */
export async function decrypt(self: Identity, sender: Bytes, signature: Bytes, payload: Bytes): Promise<Content> {
  if (payload.length < head + 1 + 16) throw malformed('ENCRYPTED_DATA is too short');
  if (!equal(payload.subarray(0, 32), self.public)) throw new SottoError('unopened', 'for another recipient');
  if (!(await isSigned(sender, payload, signature))) await verify(sender, payload.subarray(32), signature);
  const key = await gcmKey(await exchange(self.x25519.private, payload.subarray(32, 64)));
  const c = decodeContent(await openGCM(key, payload.subarray(64, head), payload.subarray(head)));
  if (c.type > ContentType.file) throw malformed('content of this type is for SEALED only');
  return c;
}

async function gcmKey(shared: Bytes): Promise<CryptoKey> {
  return crypto.subtle.importKey('raw', await sha256(shared), 'AES-GCM', false, ['encrypt', 'decrypt']);
}
