// One connection to a relay, from the handshake to its end.

import { type Bytes, random } from './bytes.js';
import type { Identity } from './crypto/identity.js';
import { asError, malformed, relayCodeNamed, type RelayCode, SottoError } from './errors.js';
import { Handshake, type RelayInfo } from './handshake.js';
import { onEvents } from './retry.js';
import { decodeFrame, encodeFrame, type Frame, headerSize, maxPayload, newFrame, Type } from './wire/frame.js';
import { decodeError, decodeGoAway } from './wire/payload.js';

/** What a WebSocket class has to be like: that of browsers, of Node from 22 on, or of the package ws. */
export type WebSocketClass = new (url: string) => WebSocketLike;

/** The part of a WebSocket that is used. */
export interface WebSocketLike {
  binaryType: string;
  readonly bufferedAmount: number;
  send(data: Uint8Array<ArrayBuffer> | string): void;
  close(code?: number, reason?: string): void;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  addEventListener(type: 'open' | 'message' | 'close' | 'error', listener: (event: any) => void): void;
}

export interface SessionOptions {
  url: string;
  WebSocket: WebSocketClass;
  identity: Identity;
  expect?: Bytes;
  allowLegacy: boolean;
  /** Called for each frame after the handshake but PINGs, one at a time, in order. What it throws ends the session. */
  onFrame(f: Frame, session: Session): void | Promise<void>;
  signal: AbortSignal; // ends the session
}

const handshakeTime = 10_000; // from the socket's opening
const openTime = 20_000;
const pingTime = 30_000;
const silenceTime = 75_000;
const probeTime = 10_000; // for an answer, when the connection may have been lost
const maxUnread = 64 << 20; // bytes that came and were not looked at
const maxUnsent = 64 << 20; // bytes that the relay has not taken: we send much less before we wait
const messageCost = 512; // bytes that a message takes beside its own
const pingSize = 8;

/** Why a session ended: an error, and when the relay asks its clients to come back. */
export class SessionEnd extends Error {
  constructor(readonly reason: SottoError, readonly retryAfter = 0, readonly elsewhere = '') {
    super(reason.message);
  }
}

/** A session with a relay. Its `relay` is set once `ready` has resolved. */
export class Session {
  relay!: RelayInfo;
  /** Resolves after the handshake, and rejects with a SessionEnd if there is none. */
  readonly ready: Promise<void>;
  /** Resolves when the session is over, and all that came has been looked at. */
  readonly ended: Promise<SessionEnd>;

  private readonly socket: WebSocketLike;
  private readonly unread = new Set<Bytes | string>(); // the oldest first: a list would be moved for each that is taken
  private unreadBytes = 0;
  private reading = false;
  private heard = Date.now();
  private last: SessionEnd | undefined; // what the latest frame said about the session
  private end: SessionEnd | undefined; // why it ends
  private closed: SessionEnd | undefined; // the socket is, and what that says
  private closing: ReturnType<typeof setTimeout> | undefined;
  private probing: ReturnType<typeof setTimeout> | undefined;
  private readonly handshake: Handshake;
  private readonly stopTimers: () => void;
  private setReady!: () => void;
  private setEnded!: (end: SessionEnd) => void;

  constructor(private readonly options: SessionOptions) {
    this.handshake = new Handshake(options);
    this.ended = new Promise((resolve) => (this.setEnded = resolve));
    this.ready = new Promise((resolve, reject) => {
      this.setReady = resolve;
      void this.ended.then(reject);
    });
    this.ready.catch(() => undefined); // whoever waits for it hears of it
    this.socket = new options.WebSocket(options.url);
    this.socket.binaryType = 'arraybuffer';
    const opening = setTimeout(() => this.fail(new SottoError('timeout', 'no connection')), openTime);
    let greeting: ReturnType<typeof setTimeout> | undefined;
    const pinging = setInterval(() => this.ping(), pingTime);
    // With another network, or when a page wakes up, a connection may be lost, of which nobody tells us.
    const stopListening = onEvents(['online', 'offline', 'visibilitychange'], () => this.probe());
    this.stopTimers = () => {
      stopListening();
      clearTimeout(opening);
      clearTimeout(greeting);
      clearTimeout(this.probing);
      clearInterval(pinging);
    };
    this.socket.addEventListener('open', () => {
      clearTimeout(opening);
      greeting = setTimeout(() => {
        if (this.relay === undefined) this.fail(new SottoError('timeout', 'no handshake'));
      }, handshakeTime);
    });
    this.socket.addEventListener('message', ({ data }) => {
      this.take(typeof data === 'string' ? data : new Uint8Array(data as ArrayBuffer));
    });
    this.socket.addEventListener('error', () => undefined); // a close follows, which says as much
    this.socket.addEventListener('close', ({ code, reason }) => this.finish(code, reason));
    options.signal.addEventListener('abort', () => this.close(), { once: true });
    if (options.signal.aborted) this.close();
  }

  get legacy(): boolean {
    return this.relay.version === 1;
  }

  /** Bytes that were sent and have not left. */
  get buffered(): number {
    return this.socket.bufferedAmount;
  }

  /** Whether frames can be sent. */
  get open(): boolean {
    return this.relay !== undefined && this.end === undefined && this.closed === undefined;
  }

  /** Sends a frame. After the end it is dropped: only a receipt says that one has arrived. */
  send(f: Frame): void {
    if (!this.open) return;
    const plain = { flags: 0, id: new Uint8Array(16) };
    this.write({ ...f, ...(this.legacy ? plain : {}), sender: this.options.identity.public });
  }

  /** Ends the session, after what was sent. */
  close(): void {
    this.fail(new SottoError('closed', 'closed'));
  }

  private write(f: Frame): void {
    if (this.buffered > maxUnsent) return this.fail(new SottoError('overloaded', 'the relay does not take what it asks for'));
    try {
      this.socket.send(encodeFrame(f));
    } catch (err) {
      this.fail(asError(err));
    }
  }

  private ping(): void {
    this.heard = Math.min(this.heard, Date.now()); // the clock may be put back
    if (Date.now() - this.heard > silenceTime) this.fail(new SottoError('disconnected', 'nothing heard for too long'));
    else if (this.open && !this.legacy) this.send(newFrame(Type.ping, { payload: random(pingSize) }));
  }

  /** Ends the session unless something is heard soon. */
  private probe(): void {
    if (!this.open || this.legacy) return;
    this.probing ??= setTimeout(() => this.fail(new SottoError('disconnected', 'no answer any more')), probeTime);
    this.send(newFrame(Type.ping, { payload: random(pingSize) }));
  }

  /** Ends the session because of something here. Only the first reason counts. */
  private fail(reason: SottoError): void {
    if (this.end !== undefined || this.closed !== undefined) return;
    this.end = new SessionEnd(reason);
    this.socket.close(1000, '');
    // A browser waits long for a peer that does not answer.
    this.closing = setTimeout(() => this.finish(1006, ''), reason.code === 'closed' ? 1000 : 0);
  }

  private take(data: Bytes | string): void {
    this.heard = Date.now();
    clearTimeout(this.probing);
    this.probing = undefined;
    if (this.end !== undefined || this.closed !== undefined) return;
    this.unread.add(data);
    this.unreadBytes += data.length + messageCost;
    if (this.unreadBytes > maxUnread) {
      this.fail(new SottoError('overloaded', 'more comes in than can be looked at'));
      this.unread.clear(); // the relay keeps what it is to keep
    }
    void this.read();
  }

  /** Looks at what came, one after the other. */
  private async read(): Promise<void> {
    if (this.reading) return;
    this.reading = true;
    for (const data of this.unread) {
      this.unread.delete(data);
      this.unreadBytes -= data.length + messageCost;
      try {
        await this.receive(data);
      } catch (err) {
        this.fail(asError(err));
        this.unread.clear();
      }
    }
    this.reading = false;
    this.settle();
  }

  private async receive(data: Bytes | string): Promise<void> {
    if (typeof data === 'string') throw malformed('the relay sent a text message');
    if (data.length > headerSize + maxPayload) return; // nothing that anybody may send
    const f = decodeFrame(data);
    this.last = sessionEnd(f);
    if (this.relay === undefined) {
      if (this.last !== undefined) return; // a refusal, which the end of the connection follows
      const answer = await this.handshake.receive(f);
      if (answer !== undefined) this.write(answer);
      if (this.handshake.relay !== undefined) {
        this.relay = this.handshake.relay;
        this.setReady();
      }
      return;
    }
    if (f.type === Type.handshake) throw malformed('a handshake message after the handshake');
    if (this.legacy && f.type > Type.encryptedData) throw malformed('a frame of an extended session in a legacy one');
    if (f.type === Type.ping) {
      if (f.payload.length !== pingSize) throw malformed('a PING of another size');
      this.send(newFrame(Type.pong, { payload: f.payload }));
    } else if (f.type !== Type.pong) await this.options.onFrame(f, this);
  }

  /** The socket has closed. */
  private finish(code: number, reason: string): void {
    this.closed ??= new SessionEnd(closeError(code, reason));
    this.stopTimers();
    clearTimeout(this.closing);
    this.settle();
  }

  private settle(): void {
    if (this.closed !== undefined && !this.reading) this.setEnded(this.end ?? this.last ?? this.closed);
  }
}

/** Returns what an ERROR about no frame in particular, or a GOAWAY, says about the session; of one that is malformed nothing. */
function sessionEnd(f: Frame): SessionEnd | undefined {
  try {
    if (f.type === Type.goAway) {
      const away = decodeGoAway(f.payload);
      return new SessionEnd(new SottoError('going-away', 'the relay goes away', true), away.after, away.address);
    }
    if (f.type !== Type.error) return undefined;
    const e = decodeError(f.flags, f.payload);
    return e.id === undefined ? new SessionEnd(new SottoError(e.code, e.reason, true)) : undefined;
  } catch {
    return undefined;
  }
}

/** Returns what a close says: the reason may name a code, else the number stands for one. */
function closeError(code: number, reason: string): SottoError {
  const byNumber: Record<number, RelayCode> = {
    1001: 'going-away', 1002: 'malformed', 1003: 'malformed', 1007: 'malformed', 1008: 'denied', 1009: 'too-large',
    1011: 'internal', 1013: 'overloaded',
  };
  const name = relayCodeNamed(reason) ?? byNumber[code];
  if (name === undefined) return new SottoError('disconnected', `connection lost (${code})`);
  return new SottoError(name, reason || `closed with ${code}`, true);
}

/** Says that connecting again without a change is no use or does harm. */
export function isFinal(err: SottoError): boolean {
  switch (err.code) {
    case 'not-authenticated': case 'bad-signature': case 'spoofed-sender': case 'denied': case 'replaced':
    case 'key-mismatch': case 'legacy-relay': case 'weak-key':
      return true;
  }
  return false;
}
