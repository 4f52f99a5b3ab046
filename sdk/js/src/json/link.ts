// One connection of the json dialect, from the registration to its end.

import { base64, type Bytes, concat, equal, fromBase64, hex, utf8 } from '../bytes.js';
import type { Key } from '../crypto/identity.js';
import type { X25519Pair } from '../crypto/x25519.js';
import { asError, malformed, SottoError } from '../errors.js';
import type { WebSocketClass, WebSocketLike } from '../session.js';
import type { Storage } from '../storage.js';
import { expectedKey, rememberKey } from '../trust.js';

/** A message of the dialect. */
export type JsonObject = Record<string, unknown>;

export interface LinkOptions {
  url: string;
  WebSocket: WebSocketClass;
  key: X25519Pair;
  address?: string;
  prove: boolean;
  relay?: Key;
  token?: string;
  storage: Storage;
  signal: AbortSignal;
  /** Called for each message but those of the registration, one at a time, in order. */
  onMessage(m: JsonObject): void | Promise<void>;
}

const registerTime = 30_000;

/** What a relay cannot be talked out of by trying again. */
function isPassing(words: string): boolean {
  return words === 'relay overloaded, retry later' || words === 'rate limit exceeded';
}

/** A refusal that ends the client. */
export class FinalError extends Error {
  constructor(readonly reason: SottoError) {
    super(reason.message);
  }
}

export class Link {
  /** Resolves when the relay has confirmed, and the backlog was handed over. */
  readonly registered: Promise<{ address: string; queued: number; proven: boolean }>;
  /** Resolves when it is over. */
  readonly ended: Promise<SottoError | FinalError>;

  private readonly socket: WebSocketLike;
  private turn: Promise<void> = Promise.resolve();
  private isRegistered = false;
  private proven = false;
  private end: SottoError | FinalError | undefined;
  private last: string | undefined; // the latest message, if it was an error about none in particular
  private confirm!: (r: { address: string; queued: number; proven: boolean }) => void;

  constructor(private readonly options: LinkOptions) {
    const socket = (this.socket = new options.WebSocket(options.url));
    const late = setTimeout(() => this.fail(new SottoError('timeout', 'not registered in time')), registerTime);
    this.ended = new Promise((resolve) => {
      socket.addEventListener('close', () => {
        clearTimeout(late);
        void this.turn.then(() => resolve(this.end ?? this.lastWords()));
      });
    });
    this.registered = new Promise((resolve, reject) => {
      this.confirm = (r) => {
        clearTimeout(late);
        resolve(r);
      };
      void this.ended.then(reject);
    });
    this.registered.catch(() => undefined); // whoever waits for it hears of it
    socket.addEventListener('open', () => this.register());
    socket.addEventListener('error', () => undefined); // a close follows
    socket.addEventListener('message', ({ data }) => {
      this.turn = this.turn.then(() => this.receive(data)).catch((err: unknown) => {
        this.fail(err instanceof FinalError ? err : asError(err));
      });
    });
    const stop = () => this.fail(new SottoError('closed', 'closed'));
    options.signal.addEventListener('abort', stop);
    socket.addEventListener('close', () => options.signal.removeEventListener('abort', stop));
    if (options.signal.aborted) stop();
  }

  /** Sends a message. */
  send(m: JsonObject): void {
    try {
      this.socket.send(JSON.stringify(m));
    } catch (err) {
      this.fail(asError(err));
    }
  }

  private register(): void {
    const { address, key, prove, token } = this.options;
    this.send({
      t: 'register', pubkey: base64(key.public),
      ...(address !== undefined && { addr: address }),
      ...(prove && { prove }),
      ...(token !== undefined && { auth: token }),
    });
  }

  private async receive(data: unknown): Promise<void> {
    if (this.end !== undefined) return;
    if (typeof data !== 'string') throw malformed('the relay sent a binary message');
    let m: JsonObject | null;
    try {
      m = JSON.parse(data) as JsonObject | null;
    } catch {
      m = null;
    }
    if (typeof m !== 'object' || m === null) throw malformed('the relay sent no JSON object');
    this.last = undefined;
    if (m.t === 'challenge' && !this.isRegistered) return this.prove(m);
    if (m.t === 'registered') {
      if (this.isRegistered) return;
      this.isRegistered = true;
      return this.confirm({ address: String(m.addr), queued: Number(m.queued), proven: this.proven });
    }
    if (m.t === 'error' && m.id === undefined) {
      const words = String(m.msg);
      if (!this.isRegistered) throw isPassing(words) ? refused(words) : new FinalError(refused(words));
      this.last = words;
    }
    await this.options.onMessage(m);
  }

  /**
   * Answers a challenge, if it was made for us, by the relay that we know or, at first
   * contact, will know from now on. Else we would open boxes for whoever asks.
   */
  private async prove(m: JsonObject): Promise<void> {
    const field = (name: string): Bytes => fromBase64(String(m[name])) ?? new Uint8Array(0);
    const relay = field('relay');
    const { url, storage, key } = this.options;
    const expect = await expectedKey(storage, url, this.options.relay);
    if (relay.length !== 32 || (expect !== undefined && !equal(expect, relay))) {
      throw new FinalError(new SottoError('key-mismatch', `the relay's key is ${hex(relay)}`));
    }
    const { openBox } = await import('../crypto/naclbox.js');
    const plain = await openBox(key.private, field('epk'), field('nonce'), field('box')).catch(() => new Uint8Array(0));
    const begin = concat(utf8('sotto json proof v1\x00'), relay);
    if (plain.length !== 84 || !equal(plain.subarray(0, begin.length), begin)) {
      throw new FinalError(new SottoError('bad-signature', 'a challenge that was not made for this'));
    }
    if (expect === undefined) await rememberKey(storage, url, hex(relay));
    this.proven = true;
    this.send({ t: 'proof', proof: base64(plain.subarray(begin.length)) });
  }

  private fail(err: SottoError | FinalError): void {
    this.end ??= err;
    this.socket.close(1000, '');
  }

  private lastWords(): SottoError | FinalError {
    if (this.last === undefined) return new SottoError('disconnected', 'connection lost');
    const err = refused(this.last);
    return this.last === 'address taken over by a new connection' ? new FinalError(err) : err;
  }
}

/** Returns the error for what a relay says. */
export function refused(words: string): SottoError {
  return new SottoError('refused', words, true);
}
