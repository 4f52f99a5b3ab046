// One session after the other, until the end.

import { rememberKey, expectedKey } from './trust.js';
import type { Identity } from './crypto/identity.js';
import { asError, SottoError } from './errors.js';
import { untilAborted } from './outbox.js';
import type { Retry } from './retry.js';
import type { Servers } from './servers.js';
import { isFinal, Session, SessionEnd, type WebSocketClass } from './session.js';
import type { Storage } from './storage.js';
import type { Frame } from './wire/frame.js';

export interface ConnectionOptions {
  identity: Identity;
  servers: Servers;
  storage: Storage;
  WebSocket: WebSocketClass;
  allowLegacy: boolean;
  /** Returns what a policy of the relay may want to see; asked for every connection. */
  token?: string | (() => string | Promise<string>);
  retry: Retry;
  onFrame(f: Frame, session: Session): Promise<void>;
  /** A session begins. It ends when the signal is aborted. */
  onUp(session: Session, signal: AbortSignal): void;
  /** There is no session, and another attempt is made after so many ms, or none. */
  onDown(reason: SottoError, retryIn: number | undefined): void;
}

export class Connection {
  private readonly life = new AbortController();
  private session: AbortController | undefined; // ends the present session

  constructor(private readonly options: ConnectionOptions) {}

  /** Connects, and connects again, until it is closed or the relay or we refuse for good; returns why it ended. */
  async run(): Promise<SottoError> {
    const { retry, onDown } = this.options;
    for (let attempt = 0; !this.life.signal.aborted; attempt++) {
      const start = Date.now();
      const { up, end } = await this.connect();
      if (this.life.signal.aborted) break;
      if (isFinal(end.reason)) return end.reason;
      await this.follow(end.elsewhere);
      if (end === reconnecting) {
        attempt = -1;
        continue;
      }
      if (up && Date.now() - start >= retry.max) attempt = 0;
      const wait = Math.max(retry.backoff(attempt), Math.min(end.retryAfter, retry.max));
      onDown(end.reason, wait);
      await retry.pause(wait, this.life.signal);
    }
    return asError(this.life.signal.reason);
  }

  /** Ends all. */
  close(reason: SottoError): void {
    this.life.abort(reason);
    this.session?.abort(reason);
  }

  /** Ends the present session, and connects again at once. */
  reconnect(): void {
    this.session?.abort(reconnecting);
    this.options.retry.hurry();
  }

  /** Has one session. */
  private async connect(): Promise<{ up: boolean; end: SessionEnd }> {
    const { options } = this;
    const ended = (this.session = new AbortController());
    let up = false;
    try {
      const server = options.servers.selected;
      // What a relay says of another one's key is no reason to trust it.
      const expect = await expectedKey(options.storage, server.url, server.discovered ? undefined : server.key);
      const session = new Session({
        ...options,
        url: await untilAborted(this.withToken(server.url), ended.signal),
        ...(expect && { expect }),
        signal: ended.signal,
      });
      await session.ready;
      const { key, firstContact } = session.relay;
      if (key !== undefined && firstContact) await rememberKey(options.storage, server.url, key);
      up = true;
      options.onUp(session, ended.signal);
      const end = await session.ended;
      return { up, end: ended.signal.aborted && ended.signal.reason === reconnecting ? reconnecting : end };
    } catch (err) {
      if (ended.signal.reason === reconnecting) return { up, end: reconnecting };
      return { up, end: err instanceof SessionEnd ? err : new SessionEnd(asError(err)) };
    } finally {
      ended.abort(new SottoError('disconnected', 'the connection has ended'));
    }
  }

  private async withToken(url: string): Promise<string> {
    const { token } = this.options;
    if (token === undefined) return url;
    const u = new URL(url);
    u.searchParams.set('access_token', typeof token === 'string' ? token : await token());
    return u.href;
  }

  /** A relay that goes away may name another one: a hint, for those who have it configured. */
  private async follow(address: string): Promise<void> {
    const there = address === '' ? undefined : this.options.servers.configured(address);
    if (there !== undefined) await this.options.servers.select(there.url);
  }
}

const reconnecting = new SessionEnd(new SottoError('disconnected', 'reconnecting'));
