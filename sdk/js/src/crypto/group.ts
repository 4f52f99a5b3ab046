// What the members of a group share for an epoch (spec native.md, "Groups" and "Blinded
// topics"), as the Go package crypto has it.
//
//   GROUP_KEY  group 16 ‖ epoch u32 ‖ key 32
//   sealed     group 16 ‖ epoch u32 ‖ nonce 12 ‖ AES-256-GCM, with the name of the topic
//              or room, as it goes over the wire, as aad; padded as in SEALED

import { base64url, type Bytes, concat, equal, hex, isZero, random, u16, u32, utf8, view } from '../bytes.js';
import { malformed, SottoError } from '../errors.js';
import { ContentType, isWellFormed } from './content.js';
import { openGCM } from './hpke.js';
import { pad, unpad } from './seal.js';

const headSize = 16 + 4;
const lastEpoch = 0xffffffff;

/** How many levels of 22 characters a topic of 512 bytes has. */
const mostLevels = 22;

/**
 * What relays see of the names of topics: all; `blinded`, that topics begin with the same
 * levels, where filters have # and + as the last level only; or `flat`, which levels are
 * equal, where filters may have + anywhere.
 */
export type Names = 'clear' | 'blinded' | 'flat';

export class GroupKey {
  readonly id: string; // 32 hexadecimal digits
  readonly epoch: number;
  readonly #encoded: Bytes; // shown by no inspection
  private aead: Promise<CryptoKey> | undefined;
  private topics: Promise<CryptoKey> | undefined;

  /** Takes what is sent to members. */
  constructor(encoded: Bytes) {
    this.#encoded = encoded;
    if (encoded.length !== headSize + 32) throw malformed('not the key of a group');
    if (isZero(encoded.subarray(headSize))) throw new SottoError('weak-key', 'a group’s key of zeros');
    this.id = hex(encoded.subarray(0, 16));
    this.epoch = view(encoded).getUint32(16);
  }

  /** Returns the first key of a new group. */
  static generate(): GroupKey {
    return new GroupKey(concat(random(16), u32(1), random(32)));
  }

  /** Returns what is sent to members, sealed: it has the key in the clear. */
  encode(): Bytes {
    return this.#encoded.slice();
  }

  /**
   * Returns the key of the next epoch, which has nothing to do with this one. Its number
   * is the time in seconds since 1970, if that is higher than the one after this: so an
   * owner that has lost the latest keys does not give their numbers to others.
   */
  next(now = Date.now()): GroupKey {
    if (this.epoch === lastEpoch) throw malformed('the last epoch of a group');
    const seconds = Math.floor(now / 1000);
    const epoch = seconds < lastEpoch ? Math.max(this.epoch + 1, seconds) : this.epoch + 1;
    return new GroupKey(concat(this.#encoded.subarray(0, 16), u32(epoch), random(32)));
  }

  /** Encrypts bytes for the members. */
  async seal(name: string, data: Bytes): Promise<Bytes> {
    const nonce = random(12);
    const how = { name: 'AES-GCM', iv: nonce, additionalData: utf8(name) };
    const sealed = await crypto.subtle.encrypt(how, await this.key(), pad({ type: ContentType.raw, data }));
    return concat(this.#encoded.subarray(0, headSize), nonce, new Uint8Array(sealed));
  }

  /** Says whether something is sealed with this key. */
  fits(sealed: Bytes): boolean {
    return sealed.length >= headSize && equal(sealed.subarray(0, headSize), this.#encoded.subarray(0, headSize));
  }

  /** Decrypts what is sealed with this key. */
  async open(name: string, sealed: Bytes): Promise<Bytes> {
    const [nonce, ciphertext] = [sealed.subarray(headSize, headSize + 12), sealed.subarray(headSize + 12)];
    if (ciphertext.length < 16) throw malformed('not sealed for a group');
    return unpad(await openGCM(await this.key(), nonce, ciphertext, utf8(name))).data;
  }

  private key(): Promise<CryptoKey> {
    return (this.aead ??= crypto.subtle.importKey(
      'raw', this.#encoded.slice(headSize), 'AES-GCM', false, ['encrypt', 'decrypt'],
    ));
  }

  /** Returns the name of a topic, or a filter, for relays. */
  async blind(name: string, names: Names, isFilter: boolean): Promise<string> {
    if (names === 'clear') return name;
    const levels = name.split('/');
    if (name === '' || levels.length > mostLevels || !isWellFormed(name)) throw malformed('cannot be a blinded topic');
    const key = await (this.topics ??= this.topicKey());
    let above: Bytes = new Uint8Array(0);
    for (const [i, level] of levels.entries()) {
      const last = i === levels.length - 1;
      if (isFilter && last && (level === '#' || level === '+')) continue;
      if (isFilter && level === '+') {
        if (names === 'flat') continue;
        throw malformed('blinded filters have + as the last level only; with names: "flat", anywhere');
      }
      if (/[+#\0]/.test(level)) throw malformed('not a topic or a filter');
      const b = utf8(level);
      above = concat(names === 'flat' ? new Uint8Array(0) : above, u16(b.length), b);
      const mac = new Uint8Array(await crypto.subtle.sign('HMAC', key, above));
      levels[i] = base64url(mac.subarray(0, 16));
    }
    return levels.join('/');
  }

  private async topicKey(): Promise<CryptoKey> {
    const seed = await crypto.subtle.importKey('raw', this.#encoded.slice(headSize), 'HKDF', false, ['deriveBits']);
    const info = concat(utf8('sotto topic key v1\x00'), this.#encoded.subarray(0, headSize));
    const how = { name: 'HKDF', hash: 'SHA-256', salt: new Uint8Array(0), info };
    const bits = await crypto.subtle.deriveBits(how, seed, 256);
    return crypto.subtle.importKey('raw', bits, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
  }
}
