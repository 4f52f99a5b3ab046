// X-Wing: ML-KEM-768 with X25519 (draft-connolly-cfrg-xwing-kem). It is not in
// WebCrypto. This module is loaded when the first message or card needs it.

import { ml_kem768_x25519 as xwing } from '@noble/post-quantum/hybrid.js';
import { type Bytes, own } from '../bytes.js';
import { malformed, SottoError } from '../errors.js';

export const publicSize = 1216;

/** Returns the public key of a 32-byte seed. */
export function publicKey(seed: Bytes): Bytes {
  return own(xwing.keygen(seed).publicKey);
}

/** Encapsulates to a public key. One that is none is `malformed`. */
export function encapsulate(to: Bytes): { secret: Uint8Array; enc: Bytes } {
  try {
    const { sharedSecret, cipherText } = xwing.encapsulate(to);
    return { secret: sharedSecret, enc: own(cipherText) };
  } catch {
    throw malformed('not an X-Wing key');
  }
}

/** Returns the secret that was encapsulated to the key of a seed. */
export function decapsulate(seed: Bytes, enc: Bytes): Uint8Array {
  try {
    return xwing.decapsulate(enc, seed);
  } catch {
    throw new SottoError('unopened', 'not encapsulated to us');
  }
}
