// The one place that verifies signatures. WebCrypto's engines differ in what they
// make of small-order and non-canonical keys and points, with which anybody can make
// signatures that hold (spec brep.md, "Keys"). So those are refused here first.

import { type Bytes } from '../bytes.js';
import { SottoError } from '../errors.js';
import { isReducedScalar, isStrictKey, isStrictPoint } from './curve.js';

/** Throws `weak-key` unless pub is the canonical encoding of a point of large order. */
export function checkKey(pub: Uint8Array): void {
  if (!isStrictKey(pub)) throw new SottoError('weak-key', 'not an Ed25519 key that can be used');
}

/**
 * Throws unless sig is the Ed25519 signature by pub over msg: `weak-key` for a pub
 * that checkKey refuses, else `bad-signature`.
 */
export async function verify(pub: Bytes, msg: Bytes, sig: Bytes): Promise<void> {
  checkKey(pub);
  if (!(await holds(pub, msg, sig))) throw new SottoError('bad-signature', 'the signature does not hold');
}

async function holds(pub: Bytes, msg: Bytes, sig: Bytes): Promise<boolean> {
  if (sig.length !== 64 || !isStrictPoint(sig.subarray(0, 32)) || !isReducedScalar(sig.subarray(32))) return false;
  const key = await crypto.subtle.importKey('raw', pub, 'Ed25519', false, ['verify']);
  return crypto.subtle.verify('Ed25519', key, sig, msg);
}

/** Reports whether verify would return. */
export async function isSigned(pub: Bytes, msg: Bytes, sig: Bytes): Promise<boolean> {
  return verify(pub, msg, sig).then(() => true, () => false);
}
