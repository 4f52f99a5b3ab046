// SIGNED_DATA (spec brep.md): readable to all, and signed.

import { type Bytes, concat, equal, isZero } from '../bytes.js';
import { malformed, SottoError } from '../errors.js';
import { type Content, ContentType, decodeContent, encodeContent } from './content.js';
import type { Identity } from './identity.js';
import { isSigned, verify } from './verify.js';

const head = 32 + 64;

/**
 * What the signatures prove: `signed`, that the sender signed the content for this
 * recipient; `legacy`, not for whom; `unsigned`, nothing, since a v1 handshake has
 * clients sign any 32 bytes.
 */
export type Trust = 'signed' | 'legacy' | 'unsigned';

/** Returns the payload of a SIGNED_DATA frame, signed twice, and the signature for its header. */
export async function signContent(
  from: Identity, to: Bytes, c: Content,
): Promise<{ payload: Bytes; signature: Bytes }> {
  const content = encodeSigned(c);
  const payload = concat(to, await from.sign(content), content);
  return { payload, signature: await from.sign(payload) };
}

/** Checks the payload and the header signature of a SIGNED_DATA frame in any of its layouts. */
export async function openSigned(
  self: Bytes, sender: Bytes, signature: Bytes, payload: Bytes,
): Promise<{ content: Content; trust: Trust }> {
  if (payload.length < 32) throw malformed('SIGNED_DATA is too short');
  if (!equal(payload.subarray(0, 32), self)) throw new SottoError('bad-signature', 'for another recipient');
  const inHeader = !isZero(signature);
  if (inHeader) await verify(sender, payload, signature);
  const content = payload.subarray(head);
  const embedded = payload.length >= head && (await isSigned(sender, content, payload.subarray(32, head)));
  if (inHeader) return { content: decodeSigned(embedded ? content : payload.subarray(32)), trust: 'signed' };
  if (!embedded) throw new SottoError('bad-signature', 'no signature holds');
  return { content: decodeSigned(content), trust: content.length === 32 ? 'unsigned' : 'legacy' };
}

/** Raw content has no type byte here, so it must not begin as if it had one. */
function encodeSigned(c: Content): Bytes {
  if (c.type > ContentType.file) throw malformed('content of this type is for SEALED only');
  if (c.type !== ContentType.raw) return encodeContent(c);
  if (beginsWithType(c.data)) throw malformed('raw content that begins with 1, 2 or 3 cannot be only signed');
  return encodeContent(c).subarray(1);
}

function decodeSigned(b: Bytes): Content {
  return beginsWithType(b) ? decodeContent(b) : { type: ContentType.raw, data: b };
}

function beginsWithType(b: Bytes): boolean {
  return b.length > 0 && b[0]! >= ContentType.text && b[0]! <= ContentType.file;
}
