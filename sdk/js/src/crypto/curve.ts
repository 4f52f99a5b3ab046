// The arithmetic of edwards25519 (RFC 8032) that WebCrypto does not offer: what an
// encoded point is. All of it is on public values, so nothing is in constant time.

import { type Bytes } from '../bytes.js';

const p = 2n ** 255n - 19n;
const d = 37095705934669439343138083508754565189542113879843219016388785533085940283555n;
const l = 2n ** 252n + 27742317777372353535851937790883648493n;

/** The y of the points of small order, whose encodings have either sign. */
const smallOrderY = new Set([
  0n,
  1n,
  p - 1n,
  2707385501144840649318225287225658788936804267575313519463743609750303402022n,
  55188659117513257062467267217118295137698188065244968500265048394206261417927n,
]);

function mod(n: bigint): bigint {
  const r = n % p;
  return r < 0n ? r + p : r;
}

function power(base: bigint, exponent: bigint): bigint {
  let result = 1n;
  for (let b = base, e = exponent; e > 0n; e >>= 1n) {
    if (e & 1n) result = (result * b) % p;
    b = (b * b) % p;
  }
  return result;
}

function littleEndian(b: Uint8Array): bigint {
  let n = 0n;
  for (let i = b.length - 1; i >= 0; i--) n = (n << 8n) | BigInt(b[i]!);
  return n;
}

function encodeLittleEndian(n: bigint): Bytes {
  return Uint8Array.from({ length: 32 }, (_, i) => Number((n >> BigInt(8 * i)) & 0xffn));
}

/** Reports whether the low 255 bits of b are a number below the prime. */
export function isReduced(b: Uint8Array): boolean {
  return (littleEndian(b) & (2n ** 255n - 1n)) < p;
}

/** Returns the y of an encoded point; undefined if it is not canonical or has a small order. */
function strictY(b: Uint8Array): bigint | undefined {
  if (b.length !== 32) return undefined;
  const y = littleEndian(b) & (2n ** 255n - 1n);
  return y >= p || smallOrderY.has(y) ? undefined : y;
}

/**
 * Reports whether b may be the point of a signature: canonical and not of small order.
 * That it is on the curve shows when the signature is verified.
 */
export function isStrictPoint(b: Uint8Array): boolean {
  return strictY(b) !== undefined;
}

/** Reports whether b is the canonical encoding of a point that does not have a small order. */
export function isStrictKey(b: Uint8Array): boolean {
  const y = strictY(b);
  if (y === undefined) return false;
  // x² = (y²-1)/(dy²+1). That is a square exactly if the product is (Euler).
  const product = mod(mod(y * y - 1n) * mod(d * y * y + 1n));
  return power(product, (p - 1n) / 2n) === 1n;
}

/** Reports whether a signature's second half is a number below the order of the base point. */
export function isReducedScalar(b: Uint8Array): boolean {
  return littleEndian(b) < l;
}

/** Returns the X25519 key of an Ed25519 key for which isStrictKey holds (RFC 7748, section 4.1). */
export function toMontgomery(b: Uint8Array): Bytes {
  const y = littleEndian(b) & (2n ** 255n - 1n);
  return encodeLittleEndian(mod((1n + y) * power(mod(1n - y), p - 2n)));
}
