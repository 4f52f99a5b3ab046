// Files of any size, on their way out (spec native.md, "Files").

import { type Bytes, hex, random } from './bytes.js';
import type { Content } from './crypto/content.js';
import { isSafeFileName } from './crypto/content.js';
import { encodeControl, encodePart, type FileControl, Layout } from './crypto/filepart.js';
import type { Key } from './crypto/identity.js';
import { asError, malformed, SottoError } from './errors.js';
import { sleep } from './pacer.js';

/** How many bytes go with an offer: few, as they come unasked. */
const firstPart = 16 << 10;

/** How many parts are sent beyond those that the receiver has. */
const window = 16;

/** How often a receiver may go back without getting further in between. */
const maxReturns = 16;

export interface SendFileOptions {
  /** Not given: the name of a File. */
  name?: string;
  /** Called when the receiver has written more: how many bytes, of how many. */
  onProgress?(done: number, size: number): void;
  /** An abort cancels the transfer. */
  signal?: AbortSignal;
}

/** Sends a content of the transfer, in order, and returns at the relay's receipt. */
export type SendPart = (to: Key, content: Content, signal?: AbortSignal) => Promise<unknown>;

export class FileSender {
  private readonly running = new Map<string, Sending>(); // by recipient and transfer

  constructor(private readonly send: SendPart) {}

  /** Sends a file, and returns when the receiver has it whole. */
  async sendFile(to: Key, file: Blob, o: SendFileOptions): Promise<void> {
    const name = o.name ?? (file as { name?: string }).name ?? '';
    if (!isSafeFileName(name)) throw malformed('not the name of a file');
    o.signal?.throwIfAborted();
    const transfer = random(16);
    const stop = new AbortController(); // ends what is on its way
    const signal = o.signal ? AbortSignal.any([o.signal, stop.signal]) : stop.signal;
    const sending = new Sending(to, transfer, file, { name, size: file.size, sha256: await sha256Of(file, signal) }, this.send);
    const key = to + hex(transfer);
    this.running.set(key, sending);
    try {
      await sending.run(o, signal);
    } catch (err) {
      const e = asError(err);
      stop.abort(e);
      if (e.code !== 'cancelled' && e.code !== 'closed') {
        this.send(to, encodeControl({ transfer, op: 'cancel' })).catch(() => undefined); // its patience will end
      }
      throw err;
    } finally {
      this.running.delete(key);
    }
  }

  /** Takes what a receiver says. */
  hear(from: Key, c: FileControl): void {
    this.running.get(from + hex(c.transfer))?.hear(c);
  }

  /** Ends what runs. */
  close(err: SottoError): void {
    for (const s of this.running.values()) s.end(err);
  }
}

/** Computes the SHA-256 of a file piece by piece, which WebCrypto does not. */
async function sha256Of(file: Blob, signal: AbortSignal): Promise<string> {
  const { sha256 } = await import('@noble/hashes/sha2.js');
  const hash = sha256.create();
  for (let at = 0; at < file.size; at += 1 << 20) {
    signal.throwIfAborted();
    hash.update(await read(file, at, at + (1 << 20)));
  }
  return hex(hash.digest());
}

async function read(file: Blob, from: number, to: number): Promise<Bytes> {
  return new Uint8Array(await file.slice(from, to).arrayBuffer());
}

/** One file on its way. */
class Sending {
  private readonly layout: Layout;
  private accepted = false;
  private have = -1; // the latest part that the receiver has
  private most = -1; // the highest that was
  private returns = 0; // how often it went back without progress in between
  private next = 0;
  private flight = 0; // parts without a receipt
  private pauses = 0;
  private error: SottoError | undefined;
  private wake: (() => void) | undefined;

  constructor(
    private readonly to: Key, private readonly transfer: Bytes, private readonly file: Blob,
    private readonly header: { name: string; size: number; sha256: string }, private readonly send: SendPart,
  ) {
    this.layout = new Layout(file.size, Math.min(file.size, firstPart));
  }

  /**
   * Takes what the receiver says. Who says the same again, or less, has lost what came
   * after that: the offer in a restart, parts in a power cut.
   */
  hear(c: FileControl): void {
    if (c.op === 'cancel') {
      return this.end(new SottoError('cancelled', this.accepted ? 'ended by the other side' : 'the file was refused'));
    }
    if (c.op === 'accept') {
      if (this.accepted) this.goBack(-1);
      this.accepted = !this.accepted;
    } else if (c.have > this.have) {
      this.accepted = true;
      this.have = Math.min(c.have, this.layout.parts - 1);
      this.next = Math.max(this.next, this.have + 1);
      if (this.have > this.most) [this.most, this.returns] = [this.have, 0];
    } else {
      this.goBack(c.have);
    }
    this.wake?.();
  }

  private goBack(have: number): void {
    this.have = have;
    this.next = have + 1;
    if (++this.returns > maxReturns) this.end(new SottoError('timeout', 'the transfer makes no progress'));
  }

  end(err: SottoError): void {
    this.error ??= err;
    this.wake?.();
  }

  /** Sends until the receiver has all. */
  async run(o: SendFileOptions, signal: AbortSignal): Promise<void> {
    const stop = () => this.wake?.();
    signal.addEventListener('abort', stop);
    let told = -1;
    try {
      for (;;) {
        signal.throwIfAborted();
        if (this.error !== undefined) throw this.error;
        if (this.most > told) {
          told = this.most;
          o.onProgress?.(this.layout.offset(told + 1), this.file.size);
        }
        if (this.have === this.layout.parts - 1) return;
        const limit = this.accepted ? Math.min(this.have + window, this.layout.parts - 1) : 0;
        if (this.next <= limit && this.flight < window) await this.part(this.next++, signal);
        else await new Promise<void>((resolve) => (this.wake = resolve));
      }
    } finally {
      signal.removeEventListener('abort', stop);
    }
  }

  private async part(index: number, signal: AbortSignal): Promise<void> {
    const data = await read(this.file, this.layout.offset(index), this.layout.offset(index + 1));
    const content = encodePart({
      transfer: this.transfer, index, last: index === this.layout.parts - 1, data,
      ...(index === 0 && { header: this.header }),
    });
    this.flight++;
    void this.send(this.to, content, signal)
      .then(() => (this.pauses = 0), (err: unknown) => this.refused(asError(err), signal))
      .finally(() => {
        this.flight--;
        this.wake?.();
      });
  }

  /** The relay has refused a part. What passes is tried again. */
  private async refused(err: SottoError, signal: AbortSignal): Promise<void> {
    const passes = ['rate-limited', 'overloaded', 'quota', 'inbox-full', 'storage-full'];
    if (!passes.includes(err.code)) return this.end(err);
    await sleep(Math.min(1000 * 2 ** this.pauses++, 60_000), signal).catch(() => undefined);
    this.next = Math.min(this.next, this.have + 1);
  }
}

