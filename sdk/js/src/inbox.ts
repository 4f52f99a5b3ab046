// Letters that came in: each goes to the application once, and is acknowledged when
// the application has taken it (spec native.md, "Delivery").

import { hex, isZero, sha256 } from './bytes.js';
import { asError, SottoError } from './errors.js';
import type { Opened } from './letter.js';
import type { Session } from './session.js';
import type { Storage } from './storage.js';
import { Flag, type Frame, Type } from './wire/frame.js';

/** 7 days in which a sender tries and 7 in an inbox. */
const rememberTime = 14 * 24 * 3600 * 1000;

/** How many letters are remembered, to drop repeats. */
const rememberMost = 50_000;

/** More than this waits only if a relay does not keep to its window of 256 and 8 MiB. */
const unreadMost = 512;
const unreadMostBytes = 32 << 20;

/** A letter on its way to the application. */
export interface Arrival {
  key: string; // what repeats have in common; '' for none
  frame: Frame;
  opened: Opened;
  session: Session; // where it came, the last time
}

export interface InboxOptions {
  storage: Storage;
  prefix: string; // of names in the storage
  open(f: Frame): Promise<Opened>;
  /** Names the queue that a letter waits in. Each hands over one at a time. */
  lane(f: Frame, o: Opened): string;
  /** Hands a letter over. What it throws leaves the letter with the relay. */
  deliver(a: Arrival): Promise<void>;
  acknowledge(a: Arrival): Promise<void>;
  /** A message did not become a letter, or was left with the relay. */
  onError(err: SottoError): void;
}

export class Inbox {
  private readonly seen = new Map<string, number>(); // when it was taken, oldest first
  private readonly unread = new Map<string, Arrival>();
  private waiting = 0; // letters, with those that have no key
  private waitingBytes = 0;
  private readonly lanes = new Map<string, (() => Promise<void>)[]>();
  private closed = false;

  constructor(private readonly options: InboxOptions) {}

  /** Reads what an earlier client has taken. */
  async load(): Promise<void> {
    const { storage, prefix } = this.options;
    const kept = (await storage.list(prefix)) as [string, number][];
    for (const [name, at] of kept.sort((a, b) => a[1] - b[1])) this.seen.set(name.slice(prefix.length), at);
    this.forget();
  }

  /** Takes a frame that carries a letter, in the order in which they came. */
  async receive(frame: Frame, session: Session): Promise<void> {
    const key = await keyOf(frame);
    const bare = { ...frame, payload: frame.payload.subarray(0, 0) };
    const unsigned = { ...bare, flags: bare.flags & ~Flag.receipt }; // acknowledged so, nothing was read under its id
    if (key !== '' && this.seen.has(key)) {
      // ENCRYPTED_DATA comes again under any id: the signature is not to be had for another.
      const again = frame.type === Type.encryptedData ? unsigned : bare;
      return this.options.acknowledge({ key, frame: again, opened: undefined!, session });
    }
    const before = this.unread.get(key);
    if (before !== undefined) {
      // The relay holds it twice, and one hold is left to each.
      if (before.session === session) return this.options.acknowledge({ key, frame: unsigned, opened: undefined!, session });
      before.session = session; // acknowledged there, when it is taken
      return;
    }
    // The relay keeps it, or has no window and drops it.
    if (this.waiting >= unreadMost || this.waitingBytes >= unreadMostBytes) return;
    let opened: Opened;
    try {
      opened = await this.options.open(frame);
    } catch (err) {
      this.options.onError(asError(err));
      // What is no letter would come again for ever. What could not be looked at, as a
      // storage failed or a part of the program was not loaded, is left to another login.
      if (!(err instanceof SottoError)) return;
      return this.options.acknowledge({ key, frame: unsigned, opened: undefined!, session });
    }
    const a: Arrival = { key, frame: bare, opened, session };
    if (key !== '') this.unread.set(key, a);
    const { length } = opened.content.data;
    this.waiting++;
    this.waitingBytes += length;
    this.queue(this.options.lane(frame, opened), async () => {
      await this.hand(a);
      this.waiting--;
      this.waitingBytes -= length;
    });
  }

  private async hand(a: Arrival): Promise<void> {
    try {
      await this.options.deliver(a);
    } catch (err) {
      this.unread.delete(a.key); // so that it may come again
      this.options.onError(asError(err));
      return;
    }
    if (a.key !== '') await this.note(a.key);
    this.unread.delete(a.key);
    await this.options.acknowledge(a);
  }

  private async note(key: string): Promise<void> {
    const now = Date.now();
    this.seen.set(key, now);
    this.forget();
    await this.options.storage.set(this.options.prefix + key, now).catch((err: unknown) => {
      this.options.onError(asError(err)); // remembered as long as we live
    });
  }

  private forget(): void {
    const oldest = Date.now() - rememberTime;
    for (const [key, at] of this.seen) {
      if (at > oldest && this.seen.size <= rememberMost) return;
      this.seen.delete(key);
      this.options.storage.delete(this.options.prefix + key).catch(() => undefined); // it is too old next time, too
    }
  }

  private queue(lane: string, f: () => Promise<void>): void {
    const waiting = this.lanes.get(lane);
    if (waiting !== undefined) {
      waiting.push(f);
      return;
    }
    const todo = [f];
    this.lanes.set(lane, todo);
    void (async () => {
      for (let next; !this.closed && (next = todo.shift()) !== undefined; ) await next();
      this.lanes.delete(lane);
    })();
  }

  /** Hands nothing more over. What was not taken stays with the relay. */
  close(): void {
    this.closed = true;
  }
}

/**
 * Returns what repeats of a letter have in common, or '' if nothing does. The signature
 * of ENCRYPTED_DATA does not cover the id, which may be missing too; but its ciphertext
 * has a random nonce, so that it never is the same again.
 */
async function keyOf(f: Frame): Promise<string> {
  if (f.type === Type.encryptedData) return hex(f.sender) + hex((await sha256(f.payload)).subarray(0, 16));
  return isZero(f.id) ? '' : hex(f.sender) + hex(f.id);
}

/** Says whether a relay that has written a frame to an extended session keeps it until it is acknowledged. */
export function isKept(f: Frame): boolean {
  return !isZero(f.id) && (f.flags & Flag.ephemeral) === 0;
}
