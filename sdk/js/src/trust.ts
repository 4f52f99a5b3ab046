// Which relay is behind an address: pinned, or the one seen there first.

import type { Bytes } from './bytes.js';
import { equal, fromHex, hex } from './bytes.js';
import { type Key, keyBytes } from './crypto/identity.js';
import { SottoError } from './errors.js';
import type { Storage } from './storage.js';

/** Returns the name of an address: its URL without query and fragment. */
export function addressOf(url: string): string {
  const u = new URL(url);
  return u.protocol + '//' + u.host + u.pathname;
}

/** Returns the key that the relay at url has to have: the pin if there is one, else the one seen there; else undefined. */
export async function expectedKey(storage: Storage, url: string, pin?: Key): Promise<Bytes | undefined> {
  if (pin !== undefined) return keyBytes(pin);
  const seen = await storage.get('relay/' + addressOf(url));
  return typeof seen === 'string' ? fromHex(seen, 32) : undefined;
}

/** Remembers the key that a relay proved to have, unless there is one. Another one stays, and is `key-mismatch`. */
export async function rememberKey(storage: Storage, url: string, key: Key): Promise<void> {
  if (await storage.add('relay/' + addressOf(url), key)) return;
  const there = await expectedKey(storage, url);
  if (there === undefined || !equal(there, keyBytes(key))) {
    throw new SottoError('key-mismatch', `the relay's key is ${key}, seen before was ${there && hex(there)}`);
  }
}

/** Forgets the key seen at url, so that the next contact there is the first. */
export async function forgetKey(storage: Storage, url: string): Promise<void> {
  await storage.delete('relay/' + addressOf(url));
}
