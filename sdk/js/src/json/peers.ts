// The keys of others in the json dialect, and what is sealed to them. The first key
// that an address is seen with is pinned; another one never replaces it silently.

import { base64, type Bytes, equal, fromBase64, sha256 } from '../bytes.js';
import type { BoxCipher } from '../crypto/naclbox.js';
import type { X25519Pair } from '../crypto/x25519.js';
import { malformed, SottoError } from '../errors.js';
import type { Storage } from '../storage.js';

/** After that long one may be asked for a key again, and be told ours again. */
export const askAgain = 10_000; // ms

const mostTold = 1024;
const mostBoxes = 4096;

/** Returns the address that is the hash of a key (spec json.md, "register"). */
export async function addressOfKey(key: Bytes): Promise<string> {
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';
  let bits = 0n;
  for (const b of (await sha256(key)).subarray(0, 10)) bits = (bits << 8n) | BigInt(b);
  return Array.from({ length: 16 }, (_, i) => alphabet[Number((bits >> BigInt(75 - 5 * i)) & 31n)]).join('');
}

/** Says whether an address has the form of one that names a key. */
function namesKey(address: string): boolean {
  return /^[A-Z2-7]{16}$/.test(address);
}

export class Peers {
  private readonly asked = new Set<string>(); // whom we have told our key to be told theirs
  private readonly told = new Map<string, number>(); // when we have told ours because they told theirs
  private readonly boxes = new Set<string>(); // that were made or opened, the oldest first
  private waiting: (() => void)[] = [];

  /** Keys are kept under names that begin with prefix. */
  constructor(
    private readonly key: X25519Pair, private readonly storage: Storage, private readonly prefix: string,
    private readonly cipher: BoxCipher,
  ) {}

  /** Returns the key that is pinned for an address. */
  async lookup(address: string): Promise<Bytes | undefined> {
    const key = await this.storage.get(this.prefix + address);
    return key instanceof Uint8Array ? (key as Bytes) : undefined;
  }

  /** Returns the key of a peer who says that it is pub, or says nothing; `fresh` says that it is to be pinned. */
  async keyOf(address: string, pub: string): Promise<{ key: Bytes; fresh: boolean }> {
    const pinned = await this.lookup(address);
    if (pub === '') {
      if (pinned === undefined) throw new SottoError('unknown-key', `no key of ${JSON.stringify(address)} is known`);
      return { key: pinned, fresh: false };
    }
    const key = fromBase64(pub);
    if (key?.length !== 32) throw malformed('not an X25519 key');
    if (pinned !== undefined && !equal(pinned, key)) throw mismatch(address);
    if (namesKey(address) && (await addressOfKey(key)) !== address) throw mismatch(address);
    return { key, fresh: pinned === undefined };
  }

  /** Remembers the key of an address, for which there was none. */
  async pin(address: string, key: Bytes): Promise<void> {
    if (!(await this.storage.add(this.prefix + address, key.slice()))) {
      if (!equal((await this.lookup(address))!, key)) throw mismatch(address);
    }
    for (const wake of this.waiting.splice(0)) wake();
  }

  /** Forgets the key of an address: it has a new one, as somebody has made sure. */
  forget(address: string): Promise<void> {
    return this.storage.delete(this.prefix + address);
  }

  /** Resolves when the next key is pinned. */
  changed(): Promise<void> {
    return new Promise((resolve) => this.waiting.push(resolve));
  }

  /** Notes that somebody is asked for a key. */
  asks(address: string): void {
    this.asked.add(address);
  }

  /**
   * Says whether an announcement is to be answered with ours. It is not if it is itself
   * an answer, or the last one was not long ago: two that always answered would never stop.
   */
  answers(address: string): boolean {
    if (this.asked.delete(address)) return false;
    const now = Date.now();
    for (const [a, at] of this.told) if (now - at >= askAgain) this.told.delete(a);
    if (this.told.has(address) || this.told.size >= mostTold) return false;
    this.told.set(address, now);
    return true;
  }

  /** Seals for a key. */
  async seal(to: Bytes, data: Bytes): Promise<{ nonce: string; ct: string }> {
    const { sealBox } = await import('../crypto/naclbox.js');
    const { nonce, box } = await sealBox(this.key.private, to, data, this.cipher);
    // Both ends have the same key for boxes. Who sends us our own back has made none.
    if (!equal(to, this.key.public)) this.isRepeat(to, base64(nonce));
    return { nonce: base64(nonce), ct: base64(box) };
  }

  /** Opens a box of either kind. undefined: it was opened before, or is our own. */
  async open(from: Bytes, nonce: string, ct: string): Promise<Bytes | undefined> {
    const [n, box] = [fromBase64(nonce), fromBase64(ct)];
    if (n === undefined || box === undefined) throw malformed('not a box in base64');
    const { openBox } = await import('../crypto/naclbox.js');
    const data = await openBox(this.key.private, from, n, box, 'xsalsa20').catch((err: SottoError) => {
      if (err.code !== 'unopened') throw err;
      return openBox(this.key.private, from, n, box, 'xchacha20');
    });
    return this.isRepeat(from, nonce) ? undefined : data;
  }

  private isRepeat(peer: Bytes, nonce: string): boolean {
    const name = base64(peer) + nonce;
    if (this.boxes.has(name)) return true;
    this.boxes.add(name);
    if (this.boxes.size > mostBoxes) this.boxes.delete(this.boxes.keys().next().value!);
    return false;
  }
}

function mismatch(address: string): SottoError {
  return new SottoError('key-mismatch', `not the key to expect of ${JSON.stringify(address)}: a new one, or somebody is in between`);
}
