// NaCl boxes, for the json dialect: X25519, XSalsa20 or XChaCha20, and Poly1305. It is
// not in WebCrypto. This module is loaded when the first box is sealed or opened.

import { poly1305 } from '@noble/ciphers/_poly1305.js';
import { hchacha, xchacha20 } from '@noble/ciphers/chacha.js';
import { hsalsa, secretbox } from '@noble/ciphers/salsa.js';
import { type Bytes, own, random, utf8 } from '../bytes.js';
import { malformed, SottoError } from '../errors.js';
import { exchange } from './x25519.js';

const tagSize = 16;

/** Which of the two boxes that libsodium has. NaCl's own is `xsalsa20`. */
export type BoxCipher = 'xsalsa20' | 'xchacha20';

/** Seals msg: a fresh nonce of 24 bytes, and a box 16 bytes longer than msg. */
export async function sealBox(
  self: CryptoKey, peer: Bytes, msg: Bytes, cipher: BoxCipher = 'xsalsa20',
): Promise<{ nonce: Bytes; box: Bytes }> {
  const nonce = random(24);
  const key = await boxKey(self, peer, cipher);
  return { nonce, box: own(cipher === 'xsalsa20' ? secretbox(key, nonce).seal(msg) : xchachaSeal(key, nonce, msg)) };
}

/** Opens a box. One that does not open is `unopened`. */
export async function openBox(
  self: CryptoKey, peer: Bytes, nonce: Bytes, box: Bytes, cipher: BoxCipher = 'xsalsa20',
): Promise<Bytes> {
  if (nonce.length !== 24 || box.length < tagSize) throw malformed('not a box');
  const key = await boxKey(self, peer, cipher);
  try {
    return own(cipher === 'xsalsa20' ? secretbox(key, nonce).open(box) : xchachaOpen(key, nonce, box));
  } catch {
    throw new SottoError('unopened', 'the box is not for us, or not from there');
  }
}

async function boxKey(self: CryptoKey, peer: Bytes, cipher: BoxCipher): Promise<Bytes> {
  const shared = await exchange(self, peer);
  const words = (b: Bytes) => new Uint32Array(b.slice().buffer);
  const out = new Uint32Array(8);
  (cipher === 'xsalsa20' ? hsalsa : hchacha)(
    words(utf8('expand 32-byte k')), words(shared), new Uint32Array(4), out,
  );
  return new Uint8Array(out.buffer);
}

/** The first 32 bytes of the key stream are the key of the MAC, which stands before the ciphertext. */
function xchachaSeal(key: Bytes, nonce: Bytes, msg: Bytes): Bytes {
  const padded = new Uint8Array(32 + msg.length);
  padded.set(msg, 32);
  const stream = xchacha20(key, nonce, padded);
  const box = stream.slice(32 - tagSize) as Bytes;
  box.set(poly1305(stream.subarray(32), stream.subarray(0, 32)));
  return box;
}

function xchachaOpen(key: Bytes, nonce: Bytes, box: Bytes): Uint8Array {
  const padded = new Uint8Array(32 + box.length - tagSize);
  padded.set(box.subarray(tagSize), 32);
  const msg = xchacha20(key, nonce, padded);
  const macKey = xchacha20(key, nonce, new Uint8Array(32));
  const tag = poly1305(padded.subarray(32), macKey);
  let differs = 0;
  for (let i = 0; i < tagSize; i++) differs |= tag[i]! ^ box[i]!;
  if (differs !== 0) throw malformed('wrong tag');
  return msg.subarray(32);
}
