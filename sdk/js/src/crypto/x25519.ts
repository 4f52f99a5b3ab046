// X25519 (RFC 7748) with WebCrypto.

import { type Bytes, concat, fromBase64url, fromHex, isZero } from '../bytes.js';
import { SottoError } from '../errors.js';
import { isReduced } from './curve.js';

const weak = () => new SottoError('weak-key', 'not an X25519 key that can be used');

/** A key pair: the public half as its 32 bytes. */
export interface X25519Pair {
  public: Bytes;
  private: CryptoKey;
}

/** PKCS #8 (RFC 8410) before the 32 bytes of an Ed25519 or X25519 private key. */
const pkcs8Head = (algorithm: 'Ed25519' | 'X25519') =>
  fromHex(`302e020100300506032b65${algorithm === 'Ed25519' ? '70' : '6e'}04220420`, 16)!;

/** Imports the 32 bytes of a private key of either kind, which must not be zero. */
export async function importPair(
  algorithm: 'Ed25519' | 'X25519', secret: Bytes, extractable: boolean,
): Promise<{ public: Bytes; private: CryptoKey }> {
  if (secret.length !== 32) throw new SottoError('malformed', 'a private key has 32 bytes');
  if (isZero(secret)) throw weak();
  const usages: KeyUsage[] = algorithm === 'Ed25519' ? ['sign'] : ['deriveBits'];
  const encoded = concat(pkcs8Head(algorithm), secret);
  const open = await crypto.subtle.importKey('pkcs8', encoded, algorithm, true, usages);
  const { x } = await crypto.subtle.exportKey('jwk', open);
  return {
    public: fromBase64url(x!)!,
    private: extractable ? open : await crypto.subtle.importKey('pkcs8', encoded, algorithm, false, usages),
  };
}

/** Returns the 32 bytes of an extractable private key. */
export async function exportPrivate(key: CryptoKey): Promise<Bytes> {
  return new Uint8Array(await crypto.subtle.exportKey('pkcs8', key)).slice(16);
}

/**
 * Returns the secret shared with the holder of peer: 32 bytes. A key of low order, or
 * in no canonical form but for the ignored highest bit, is `weak-key`.
 */
export async function exchange(self: CryptoKey, peer: Bytes): Promise<Bytes> {
  const canonical = peer.slice();
  if (canonical.length !== 32 || !isReduced(canonical)) throw weak();
  canonical[31]! &= 0x7f;
  let shared: Bytes;
  try {
    const key = await crypto.subtle.importKey('raw', canonical, 'X25519', false, []);
    shared = new Uint8Array(await crypto.subtle.deriveBits({ name: 'X25519', public: key }, self, 256));
  } catch {
    throw weak();
  }
  if (isZero(shared)) throw weak(); // not every engine refuses that
  return shared;
}

/** Returns a fresh pair, of which only the public half can be read. */
export async function generateX25519(): Promise<X25519Pair> {
  const pair = (await crypto.subtle.generateKey('X25519', false, ['deriveBits'])) as CryptoKeyPair;
  return { public: new Uint8Array(await crypto.subtle.exportKey('raw', pair.publicKey)), private: pair.privateKey };
}
