// HPKE (RFC 9180) in base mode, for one message, with HKDF-SHA256 and AES-256-GCM.
// What is kept out: other suites, other modes, and contexts of several messages.

import { type Bytes, concat, own, u16, utf8 } from '../bytes.js';
import { SottoError } from '../errors.js';
import { exchange, generateX25519, type X25519Pair } from './x25519.js';

/** KEM identifiers of RFC 9180 and of X-Wing. */
export const kemX25519 = 0x0020;
export const kemXWing = 0x647a;

const kdf = 0x0001;
const aead = 0x0002;
const keySize = 32;
const nonceSize = 12;
const none = new Uint8Array(0);

/** HKDF with the labels of one suite (RFC 9180, section 4). */
class LabeledKDF {
  constructor(private readonly suite: Bytes) {}

  extract(salt: Bytes, label: string, ikm: Bytes): Promise<Bytes> {
    return hmac(salt, concat(utf8('HPKE-v1'), this.suite, utf8(label), ikm));
  }

  /** Expands to at most 32 bytes, which is all that is needed: one block of HKDF. */
  async expand(prk: Bytes, label: string, info: Bytes, size: number): Promise<Bytes> {
    const labeled = concat(u16(size), utf8('HPKE-v1'), this.suite, utf8(label), info, Uint8Array.of(1));
    return (await hmac(prk, labeled)).slice(0, size);
  }
}

async function hmac(key: Bytes, data: Bytes): Promise<Bytes> {
  // HMAC pads keys with zeros, and WebCrypto takes no empty ones.
  const padded = key.length === 0 ? new Uint8Array(32) : key;
  const imported = await crypto.subtle.importKey('raw', padded, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
  return new Uint8Array(await crypto.subtle.sign('HMAC', imported, data));
}

/** Returns the secret of DHKEM from the exchanged one (RFC 9180, section 4.1). */
function dhkemSecret(shared: Bytes, enc: Bytes, recipient: Bytes): Promise<Bytes> {
  const kdf = new LabeledKDF(concat(utf8('KEM'), u16(kemX25519)));
  return kdf
    .extract(none, 'eae_prk', shared)
    .then((prk) => kdf.expand(prk, 'shared_secret', concat(enc, recipient), 32));
}

/** Encapsulates to an X25519 key. */
export async function encapsulateX25519(to: Bytes): Promise<{ secret: Bytes; enc: Bytes }> {
  const ephemeral = await generateX25519();
  const enc = ephemeral.public;
  return { enc, secret: await dhkemSecret(await exchange(ephemeral.private, to), enc, to) };
}

/** Returns the secret that was encapsulated to an X25519 key. */
export async function decapsulateX25519(self: X25519Pair, enc: Bytes): Promise<Bytes> {
  return dhkemSecret(await exchange(self.private, enc), enc, self.public);
}

/** Returns the key and nonce of the first message (RFC 9180, section 5.1). */
async function schedule(kem: number, secret: Bytes, info: Bytes): Promise<{ key: CryptoKey; nonce: Bytes }> {
  const labeled = new LabeledKDF(concat(utf8('HPKE'), u16(kem), u16(kdf), u16(aead)));
  const context = concat(
    Uint8Array.of(0),
    await labeled.extract(none, 'psk_id_hash', none),
    await labeled.extract(none, 'info_hash', info),
  );
  const prk = await labeled.extract(secret, 'secret', none);
  const raw = await labeled.expand(prk, 'key', context, keySize);
  return {
    key: await crypto.subtle.importKey('raw', raw, 'AES-GCM', false, ['encrypt', 'decrypt']),
    nonce: await labeled.expand(prk, 'base_nonce', context, nonceSize),
  };
}

/** Encrypts one message under a secret that was encapsulated for it alone. */
export async function sealWith(kem: number, secret: Uint8Array, info: Bytes, plaintext: Bytes): Promise<Bytes> {
  const { key, nonce } = await schedule(kem, own(secret), info);
  return new Uint8Array(await crypto.subtle.encrypt({ name: 'AES-GCM', iv: nonce }, key, plaintext));
}

/** Decrypts it. What does not open is `unopened`. */
export async function openWith(kem: number, secret: Uint8Array, info: Bytes, ciphertext: Bytes): Promise<Bytes> {
  const { key, nonce } = await schedule(kem, own(secret), info);
  return openGCM(key, nonce, ciphertext);
}

/** Decrypts AES-GCM. What does not open is `unopened`. */
export async function openGCM(key: CryptoKey, nonce: Bytes, ciphertext: Bytes, aad: Bytes = none): Promise<Bytes> {
  try {
    return new Uint8Array(
      await crypto.subtle.decrypt({ name: 'AES-GCM', iv: nonce, additionalData: aad }, key, ciphertext),
    );
  } catch {
    throw new SottoError('unopened', 'it is not what was encrypted, or not for us');
  }
}
