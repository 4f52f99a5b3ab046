// Files of any size that come in. Nothing is asked for, and nothing written, before the
// application has accepted the name and the size.

import { type Bytes, hex } from './bytes.js';
import { encodeControl, type FileControl, type FileHeader, type FilePart, Layout } from './crypto/filepart.js';
import type { Key } from './crypto/identity.js';
import { asError, SottoError } from './errors.js';
import type { SendPart } from './filesend.js';

/** A file that somebody wants to send us. All of it is the sender's word. */
export interface FileOffer {
  from: Key;
  /** Names the transfer, in hex. */
  transfer: string;
  /** Safe to join to a directory. */
  name: string;
  size: number; // bytes
}

/** A step of a file that comes in. The last has a blob, or `whole`, or an error. */
export interface FileProgress extends FileOffer {
  /** How many bytes have come. */
  done: number;
  /** All has come, with the SHA-256 that was announced. */
  whole: boolean;
  /** The file, if it was accepted with `true`. */
  blob?: Blob;
  /** Why there will be none. */
  error?: SottoError;
}

/**
 * Decides about an offer: undefined or false refuses it; true collects the file in memory; a stream
 * gets it in pieces, and is closed once all has come and is as announced, or aborted.
 */
export type AcceptFile = (o: FileOffer) => Decision | Promise<Decision>;
type Decision = boolean | undefined | WritableStream<Uint8Array>;

/** A transfer that has made no progress for that long is ended when somebody wants its place. */
const idleTime = 24 * 3600 * 1000;

const mostOfOne = 4;
const mostOfAll = 16;
const rememberEnds = 1024;

interface Incoming {
  offer: FileOffer;
  header: FileHeader;
  layout: Layout;
  next: number; // index of the part that is written next
  began?: Promise<void>; // writing part 0, once it was accepted
  touched: number; // when it made progress, ms since 1970
  lost: number; // what was next when it was last found missing
  hash?: { update(b: Uint8Array): unknown; digest(): Uint8Array }; // once it was accepted
  writer?: WritableStreamDefaultWriter<Uint8Array>;
  pieces?: Bytes[];
  told: number; // what the sender was told last
  due: boolean; // the sender is to be told what has come
  telling: boolean;
  cancelled: boolean;
}

export class FileReceiver {
  private readonly incoming = new Map<string, Incoming>();
  /** How transfers have ended: the index of the last part if whole. */
  private readonly ends = new Map<string, number | undefined>();

  constructor(
    private readonly send: SendPart, private readonly accept: AcceptFile,
    private readonly onProgress: (p: FileProgress) => void,
  ) {}

  /** Takes a part, and returns when it is written. Those of one transfer but the offer come one after the other. */
  async part(from: Key, p: FilePart): Promise<void> {
    const key = from + hex(p.transfer);
    const t = this.incoming.get(key);
    if (t !== undefined) return p.header === undefined ? this.follow(key, t, p) : this.offeredAgain(key, t, p);
    const end = this.ends.get(key);
    if (end !== undefined) return this.say(from, { transfer: p.transfer, op: 'have', have: end });
    if (p.header !== undefined) return this.offered(key, from, p, p.header);
    // A part without an offer, which was lost with an earlier page: ask for it, once.
    if (!this.ends.has(key)) this.say(from, { transfer: p.transfer, op: 'accept' });
    this.remember(key, undefined);
  }

  private async offered(key: string, from: Key, p: FilePart, header: FileHeader): Promise<void> {
    for (const [other, t] of this.incoming) {
      if (Date.now() - t.touched >= idleTime) this.end(other, t, new SottoError('timeout', 'the transfer makes no progress'));
    }
    const layout = new Layout(header.size, p.data.length);
    const ofOne = [...this.incoming.values()].filter((t) => t.offer.from === from).length;
    if (ofOne >= mostOfOne || this.incoming.size >= mostOfAll || !layout.fits(p)) {
      return this.say(from, { transfer: p.transfer, op: 'cancel' });
    }
    const offer = { from, transfer: hex(p.transfer), name: header.name, size: header.size };
    const t: Incoming = {
      offer, header, layout, next: 0, touched: Date.now(), lost: -1, told: -1, due: false, telling: false, cancelled: false,
    };
    this.incoming.set(key, t);
    let decision: Decision;
    try {
      decision = await this.accept(offer);
      t.hash = (await import('@noble/hashes/sha2.js')).sha256.create();
    } catch {
      decision = false;
    }
    if (t.cancelled) return;
    if (!decision) return this.end(key, t, new SottoError('cancelled', 'the file was refused'));
    if (decision === true) t.pieces = [];
    else t.writer = decision.getWriter();
    this.say(from, { transfer: p.transfer, op: 'accept' });
    await (t.began = this.write(key, t, p.data));
  }

  /** The sender of a part 0 that is known wants to know how far the file has come. */
  private offeredAgain(key: string, t: Incoming, p: FilePart): void | Promise<void> {
    if (JSON.stringify(p.header) !== JSON.stringify(t.header) || p.data.length !== t.layout.first) {
      return this.end(key, t, damaged());
    }
    if (t.began === undefined) return; // whoever decides has not yet
    this.say(t.offer.from, { transfer: p.transfer, op: 'accept' });
    this.tell(key, t);
  }

  private async follow(key: string, t: Incoming, p: FilePart): Promise<void> {
    if (!t.layout.fits(p)) return this.end(key, t, damaged());
    if (t.began === undefined) return; // nobody has asked for it
    await t.began;
    if (t.cancelled) return;
    if (p.index === t.next) return this.write(key, t, p.data);
    if (p.index < t.next || t.lost === t.next) return;
    // Something is missing. A sender that is told the same again goes back there.
    t.lost = t.next;
    const control: FileControl = { transfer: p.transfer, op: 'have', have: t.next - 1 };
    if (t.told !== control.have) this.say(t.offer.from, control);
    t.told = control.have;
    this.say(t.offer.from, control);
  }

  private async write(key: string, t: Incoming, data: Bytes): Promise<void> {
    try {
      t.hash!.update(data);
      t.pieces?.push(data.slice());
      await t.writer?.write(data);
    } catch (err) {
      return this.end(key, t, asError(err));
    }
    if (t.cancelled) return;
    t.next++;
    t.touched = Date.now();
    if (t.next === t.layout.parts) return this.finish(key, t);
    this.onProgress({ ...t.offer, done: t.layout.offset(t.next), whole: false });
    this.tell(key, t);
  }

  private async finish(key: string, t: Incoming): Promise<void> {
    if (hex(t.hash!.digest()) !== t.header.sha256) return this.end(key, t, damaged());
    try {
      await t.writer?.close();
    } catch (err) {
      return this.end(key, t, asError(err));
    }
    this.incoming.delete(key);
    this.remember(key, t.layout.parts - 1);
    const blob = t.pieces && new Blob(t.pieces);
    this.onProgress({ ...t.offer, done: t.offer.size, whole: true, ...(blob && { blob }) });
    this.say(t.offer.from, { transfer: transferOf(key), op: 'have', have: t.layout.parts - 1 });
  }

  /** Takes a sender's word that a transfer is over. */
  cancelled(from: Key, transfer: Bytes): void {
    const key = from + hex(transfer);
    const t = this.incoming.get(key);
    if (t !== undefined) this.end(key, t, new SottoError('cancelled', 'ended by the other side'), false);
  }

  /** Ends all, as the page ends. */
  close(): void {
    for (const [key, t] of this.incoming) this.end(key, t, new SottoError('closed', 'closed'), false);
  }

  private end(key: string, t: Incoming, error: SottoError, tell = true): void {
    t.cancelled = true;
    this.incoming.delete(key);
    this.remember(key, undefined);
    t.writer?.abort(error).catch(() => undefined); // it is of no use any more
    this.onProgress({ ...t.offer, done: t.layout.offset(t.next), whole: false, error });
    if (tell) this.say(t.offer.from, { transfer: transferOf(key), op: 'cancel' });
  }

  /** Tells how far the file has come, once for all that comes while that is on its way. */
  private tell(key: string, t: Incoming): void {
    t.due = true;
    if (t.telling) return;
    t.telling = true;
    void (async () => {
      while (t.due && this.incoming.get(key) === t) {
        t.due = false;
        t.told = t.next - 1;
        const control = encodeControl({ transfer: transferOf(key), op: 'have', have: t.told });
        await this.send(t.offer.from, control).catch(() => undefined); // the next one says more
      }
      t.telling = false;
    })();
  }

  private say(to: Key, c: FileControl): void {
    this.send(to, encodeControl(c)).catch(() => undefined); // refused by a relay that is full, or the end
  }

  private remember(key: string, last: number | undefined): void {
    this.ends.set(key, last);
    if (this.ends.size > rememberEnds) this.ends.delete(this.ends.keys().next().value!);
  }
}

function transferOf(key: string): Bytes {
  return Uint8Array.from({ length: 16 }, (_, i) => parseInt(key.slice(64 + 2 * i, 66 + 2 * i), 16));
}

const damaged = () => new SottoError('malformed', 'the file is not what was announced');
