// Messages that have no final receipt yet. They are kept, and sent again, the same
// bytes, in order, after every reconnect (spec native.md, "Delivery").

import { type Bytes, hex } from './bytes.js';
import { asError, SottoError } from './errors.js';
import type { Storage } from './storage.js';
import { decodeFrame, encodeFrame, type Frame } from './wire/frame.js';

/** For how long a message is tried. */
const retryTime = 7 * 24 * 3600 * 1000;

/** Of how many messages that have come far enough later receipts are understood. */
const rememberDone = 10_000;

/**
 * How far a message has come: `queued` here, `written` to a legacy session, of which
 * nothing is heard; `handed` to a connection of the recipient and `stored` for it, both
 * the relay's word; `read`, acknowledged by the recipient, whose signature was checked.
 */
export type Status = 'queued' | 'written' | 'handed' | 'stored' | 'read';

const order: Status[] = ['queued', 'written', 'handed', 'stored', 'read'];

/** Says whether a status is as good as another one. A legacy session has nothing better than `written`. */
export function reaches(status: Status, wanted: Status): boolean {
  return status === 'written' || order.indexOf(status) >= order.indexOf(wanted);
}

/** A message on its way. */
export interface Pending {
  frame: Frame; // without a sender
  made: number; // ms since 1970
  status: Status;
  error?: SottoError; // why it ended
  name?: string; // in the storage
  watchers: Set<() => void>; // called when status or error is another
}

export class Outbox {
  private readonly all = new Map<string, Pending>(); // by id in hex, oldest first
  private readonly done = new Map<string, Pending>(); // have come far enough, and may come further
  private unsent: Pending[] = []; // what was not given to this connection yet
  private bytes = 0;
  private next = 0; // number of the next one in the storage
  private room: (() => void)[] = []; // called when there is more of it
  private wake: (() => void) | undefined; // called when there is something unsent
  private loaded: Promise<void> | undefined;
  private error: SottoError | undefined; // nothing is taken any more

  /** Messages are kept under names that begin with prefix. */
  constructor(
    private readonly storage: Storage, private readonly prefix: string,
    private readonly maxMessages: number, private readonly maxBytes: number,
    private readonly onError: (err: SottoError) => void = () => undefined,
  ) {}

  /** How many messages are on their way, and their bytes. */
  get size(): { messages: number; bytes: number } {
    return { messages: this.all.size, bytes: this.bytes };
  }

  /** Reads what an earlier client left, once: it goes out before anything newer. */
  load(): Promise<void> {
    return (this.loaded ??= this.read());
  }

  private async read(): Promise<void> {
    for (const [name, value] of await this.storage.list(this.prefix)) {
      this.next = Math.max(this.next, parseInt(name.slice(this.prefix.length), 10) + 1);
      try {
        const { frame, made } = value as { frame: Bytes; made: number };
        this.put({ frame: decodeFrame(frame), made, status: 'queued', name, watchers: new Set() });
      } catch (err) {
        this.onError(asError(err)); // it is damaged; the others go out
      }
    }
  }

  /** Takes a message, and waits for room if there is none. One of any size passes when it is alone. */
  async add(frame: Frame, keep: boolean, signal?: AbortSignal): Promise<Pending> {
    await this.load();
    const size = frame.payload.length;
    while (this.error === undefined && this.all.size > 0 &&
      (this.all.size >= this.maxMessages || this.bytes + size > this.maxBytes)) {
      await untilAborted(new Promise<void>((resolve) => this.room.push(resolve)), signal);
    }
    if (this.error !== undefined) throw this.error;
    signal?.throwIfAborted();
    const p: Pending = { frame, made: Date.now(), status: 'queued', watchers: new Set() };
    this.put(p);
    if (keep) {
      // Another page may be taking over, and count as we do.
      const name = (p.name = `${this.prefix}${String(this.next++).padStart(12, '0')}-${hex(frame.id.subarray(0, 4))}`);
      try {
        await this.storage.set(name, { frame: encodeFrame(frame), made: p.made });
      } catch (err) {
        this.fail(p, asError(err)); // a storage that is full, say
        throw err;
      }
      if (!this.has(p)) await this.storage.delete(name); // it has ended meanwhile
    }
    return p;
  }

  private put(p: Pending): void {
    this.all.set(hex(p.frame.id), p);
    this.bytes += p.frame.payload.length;
    this.unsent.push(p);
    this.wake?.();
  }

  /** Begins a new connection: everything is to be sent, again or for the first time. */
  rewind(): void {
    this.unsent = [...this.all.values()];
    this.wake?.();
  }

  /** Returns the next message for this connection, once there is one. */
  async take(signal: AbortSignal): Promise<Pending> {
    for (;;) {
      signal.throwIfAborted();
      const p = this.unsent.shift();
      if (p !== undefined && this.all.get(hex(p.frame.id)) === p) return p;
      if (p === undefined) await untilAborted(new Promise<void>((resolve) => (this.wake = resolve)), signal);
    }
  }

  /** Returns the message with this id, if it is on its way, or may come further. */
  find(id: Bytes): Pending | undefined {
    return this.all.get(hex(id)) ?? this.done.get(hex(id));
  }

  /** Says whether a message is still to be sent. */
  has(p: Pending): boolean {
    return this.all.has(hex(p.frame.id));
  }

  /** Notes how far a message has come. It is sent again until it is settled. */
  advance(p: Pending, status: Status): void {
    if (order.indexOf(status) <= order.indexOf(p.status)) return;
    p.status = status;
    if (status === 'read') this.done.delete(hex(p.frame.id));
    for (const watch of [...p.watchers]) watch();
  }

  /** Says that a message has come far enough. */
  settle(p: Pending): void {
    if (!this.remove(p) || p.status === 'read') return;
    // Its recipient is needed, to check an acknowledgement.
    p.frame = { ...p.frame, payload: p.frame.payload.slice(0, 32) };
    this.done.set(hex(p.frame.id), p);
    if (this.done.size > rememberDone) this.done.delete(this.done.keys().next().value!);
  }

  /** Ends a message. */
  fail(p: Pending, err: SottoError): void {
    if (!this.remove(p) && !this.done.delete(hex(p.frame.id))) return;
    p.error = err;
    for (const watch of [...p.watchers]) watch();
  }

  private remove(p: Pending): boolean {
    if (!this.all.delete(hex(p.frame.id))) return false;
    this.bytes -= p.frame.payload.length;
    if (p.name !== undefined) this.storage.delete(p.name).catch(() => undefined); // it is sent once more, then
    for (const wake of this.room.splice(0)) wake();
    return true;
  }

  /** Ends what has been tried for too long. */
  removeOld(): void {
    for (const p of this.all.values()) {
      if (Date.now() - p.made >= retryTime) this.fail(p, new SottoError('expired', 'no receipt for 7 days'));
    }
  }

  /** Takes nothing more. What is kept in the storage is left to the next client. */
  close(err: SottoError): void {
    this.error = err;
    for (const p of [...this.all.values(), ...this.done.values()]) {
      delete p.name;
      this.fail(p, err);
    }
    for (const wake of this.room.splice(0)) wake();
  }
}

/** Waits for p, or until the signal is aborted, and then throws its reason. */
export async function untilAborted<T>(p: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return p;
  let stop!: () => void;
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason);
    signal.addEventListener('abort', stop, { once: true });
  });
  if (signal.aborted) stop();
  try {
    return await Promise.race([aborted, p]); // p is waited for in any case, so that its end is nobody's surprise
  } finally {
    signal.removeEventListener('abort', stop);
  }
}
