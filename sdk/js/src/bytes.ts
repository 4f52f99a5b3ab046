// Byte arrays: the few things that the platform leaves out.

/** Bytes that stand on a buffer of their own kind, as WebCrypto takes them. */
export type Bytes = Uint8Array<ArrayBuffer>;

/** Returns the parts, one after the other. */
export function concat(...parts: Uint8Array[]): Bytes {
  let size = 0;
  for (const p of parts) size += p.length;
  const all = new Uint8Array(size);
  let at = 0;
  for (const p of parts) {
    all.set(p, at);
    at += p.length;
  }
  return all;
}

/** Returns a copy, or the same bytes if they already stand on an ArrayBuffer. */
export function own(b: Uint8Array): Bytes {
  return b.buffer instanceof ArrayBuffer ? (b as Bytes) : new Uint8Array(b);
}

/** Reports whether two public values are the same. The time it takes tells where they differ. */
export function equal(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((x, i) => x === b[i]);
}

/** Reports whether all bytes are zero, in time that depends on the length only. */
export function isZero(b: Uint8Array): boolean {
  let or = 0;
  for (const x of b) or |= x;
  return or === 0;
}

/** Returns n random bytes. */
export function random(n: number): Bytes {
  return crypto.getRandomValues(new Uint8Array(n));
}

const utf8Encoder = new TextEncoder();

/** Returns the UTF-8 of a string. A lone surrogate becomes U+FFFD. */
export function utf8(s: string): Bytes {
  return utf8Encoder.encode(s) as Bytes;
}

/** Returns the string that bytes are the UTF-8 of; undefined if they are not UTF-8. */
export function fromUTF8(b: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(b);
  } catch {
    return undefined;
  }
}

/** Returns the lower-case hexadecimal digits. */
export function hex(b: Uint8Array): string {
  let s = '';
  for (const x of b) s += x.toString(16).padStart(2, '0');
  return s;
}

/** Returns size bytes from exactly their lower-case hexadecimal digits; undefined for all else. */
export function fromHex(s: string, size: number): Bytes | undefined {
  if (s.length !== 2 * size || !/^[0-9a-f]*$/.test(s)) return undefined;
  return Uint8Array.from({ length: size }, (_, i) => parseInt(s.slice(2 * i, 2 * i + 2), 16));
}

/** Returns standard base64, with padding. */
export function base64(b: Uint8Array): string {
  let s = '';
  for (let i = 0; i < b.length; i += 0x2000) s += String.fromCharCode(...b.subarray(i, i + 0x2000));
  return btoa(s);
}

/** Returns the bytes of canonical standard base64; undefined for all else. */
export function fromBase64(s: string): Bytes | undefined {
  let text: string;
  try {
    text = atob(s);
  } catch {
    return undefined;
  }
  const b = Uint8Array.from(text, (c) => c.charCodeAt(0));
  return base64(b) === s ? b : undefined;
}

/** Returns base64url, without padding. */
export function base64url(b: Uint8Array): string {
  return base64(b).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
}

/** Returns the bytes of canonical base64url without padding; undefined for all else. */
export function fromBase64url(s: string): Bytes | undefined {
  if (!/^[A-Za-z0-9_-]*$/.test(s)) return undefined;
  const padding = '='.repeat((4 - (s.length % 4)) % 4);
  return fromBase64(s.replaceAll('-', '+').replaceAll('_', '/') + padding);
}

/** Returns a big-endian u16. */
export function u16(n: number): Bytes {
  return Uint8Array.of(n >> 8, n);
}

/** Returns a big-endian u32. */
export function u32(n: number): Bytes {
  return Uint8Array.of(n >>> 24, n >>> 16, n >>> 8, n);
}

/** Returns a big-endian u64. */
export function u64(n: bigint): Bytes {
  const b = new Uint8Array(8);
  new DataView(b.buffer).setBigUint64(0, n);
  return b;
}

/** Reads the big-endian integers in b. */
export function view(b: Uint8Array): DataView {
  return new DataView(b.buffer, b.byteOffset, b.byteLength);
}

/** Returns the SHA-256 of b. */
export async function sha256(b: Uint8Array): Promise<Bytes> {
  return new Uint8Array(await crypto.subtle.digest('SHA-256', own(b)));
}
