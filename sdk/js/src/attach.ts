// Saying where we are, in words that relays show one another (spec mesh.md, "Attachment"),
// so that others bring our messages, and our mail, to the relay that we are connected to.

import { base64, type Bytes, concat, u64, utf8 } from './bytes.js';
import { type Identity, type Key, keyBytes } from './crypto/identity.js';
import { asError, type SottoError } from './errors.js';
import { sleep } from './pacer.js';
import type { Requests } from './requests.js';

/** How long a statement holds: as long as any may. */
const attachTime = 3600 * 1000;

/** When one that was not taken is made again, at first. */
const againTime = 10 * 1000;

/** Returns the statement that we are at a relay until a time, in ms since 1970. */
export async function attachment(identity: Identity, relay: Key, notAfter: number): Promise<Bytes> {
  const said = concat(keyBytes(relay), identity.public, u64(BigInt(notAfter)));
  return concat(said, await identity.sign(concat(utf8('sotto attach v1\x00'), said)));
}

/**
 * Says that we are at a relay, and again at half time, until the signal is aborted. A
 * relay that knows no mesh is left in peace; one whose mesh has not begun, or whose clock
 * differs, is told again.
 */
export async function keepAttached(
  identity: Identity, relay: Key, requests: Requests, onError: (err: SottoError) => void, signal: AbortSignal,
): Promise<void> {
  let again = againTime;
  while (!signal.aborted) {
    let wait = attachTime / 2;
    try {
      const stmt = await attachment(identity, relay, Date.now() + attachTime);
      await requests.ask('attach', { stmt: base64(stmt) }, signal);
      again = againTime;
    } catch (err) {
      const e = asError(err);
      if (signal.aborted || e.code === 'unknown-verb' || e.code === 'closed') return;
      if (e.code !== 'overloaded') onError(e);
      [wait, again] = [again, Math.min(2 * again, wait)];
    }
    await sleep(wait, signal).catch(() => undefined);
  }
}
