// A relay in this process that does as a test says, good or evil.

import { type Bytes, base64, concat, hex, random, u16, u32, utf8 } from '../src/bytes.js';
import { Client, type ClientOptions, Identity, type WebSocketClass } from '../src/index.js';
import { decodeFrame, encodeFrame, type Frame, newFrame, Type } from '../src/wire/frame.js';

type Handler = (event: { data?: ArrayBuffer | string; code?: number; reason?: string }) => void;

/** One connection to it. */
export class FakeConn {
  /** The frames that came, but the handshake. */
  readonly got: Frame[] = [];
  private waiting: (() => void)[] = [];

  constructor(private readonly socket: FakeSocket, private readonly relay: FakeRelay) {}

  /** Sends a frame, of the relay's unless it says whose. */
  send(type: number, fields: Partial<Frame> = {}): void {
    this.raw(encodeFrame(newFrame(type, { sender: this.relay.identity.public, ...fields })));
  }

  raw(data: Uint8Array | string): void {
    this.socket.fire('message', { data: typeof data === 'string' ? data : data.slice().buffer as ArrayBuffer });
  }

  end(code = 1006, reason = ''): void {
    this.socket.end(code, reason);
  }

  /** Waits until the client has looked at all that was sent. */
  async seen(): Promise<void> {
    const before = this.got.filter((f) => f.type === Type.pong).length;
    this.send(Type.ping, { payload: new Uint8Array(8) });
    await this.frame(Type.pong, before);
  }

  /** Answers a request with fields, or refuses it. */
  respond(f: Frame, fields: object): void {
    const { req, t } = JSON.parse(new TextDecoder().decode(f.payload)) as { req: number; t: string };
    this.send(Type.response, { payload: utf8(JSON.stringify({ t, req, ok: true, ...fields })) });
  }

  error(code: number, sentence = '', id?: Bytes): void {
    this.send(Type.error, { flags: id ? 1 : 0, payload: concat(u16(code), utf8(sentence), id ?? new Uint8Array(0)) });
  }

  receipt(id: Bytes, status: number, ...rest: Uint8Array[]): void {
    this.send(Type.receipt, { payload: concat(id, Uint8Array.of(status), ...rest) });
  }

  goAway(ms: number, address = ''): void {
    this.send(Type.goAway, { payload: concat(u32(ms), utf8(address)) });
  }

  /** Waits for a frame of a type, from the n-th on. */
  async frame(type: number, n = 0): Promise<Frame> {
    for (;;) {
      const f = this.got.filter((g) => g.type === type)[n];
      if (f !== undefined) return f;
      await new Promise<void>((resolve) => this.waiting.push(resolve));
    }
  }

  /** Waits for a request with a verb, and passes over others. */
  async request(verb: string, n = 0): Promise<Frame> {
    for (let i = 0; ; i++) {
      const f = await this.frame(Type.request, i);
      if ((JSON.parse(new TextDecoder().decode(f.payload)) as { t: string }).t === verb && n-- === 0) return f;
    }
  }

  take(f: Frame): void {
    this.got.push(f);
    for (const wake of this.waiting.splice(0)) wake();
  }
}

export interface Behaviour {
  version?: 1 | 2;
  durable?: boolean;
  /** Has a say in each frame after the handshake; true: it is done with. */
  onFrame?(f: Frame, conn: FakeConn): boolean | void;
  /** Changes what the handshake says. */
  challenge?(f: Frame): Frame;
  confirm?(f: Frame): Frame;
}

/** A relay that hands over to nobody: it answers what `behave` says, and cards with not-found. */
export class FakeRelay {
  readonly url = 'ws://fake.example/';
  readonly conns: FakeConn[] = [];
  cards = new Map<string, Bytes>();
  /** How much of what clients send has not left. */
  buffered = 0;
  private waiting: (() => void)[] = [];

  constructor(readonly identity: Identity, public behave: Behaviour = {}) {}

  static async start(behave: Behaviour = {}): Promise<FakeRelay> {
    return new FakeRelay(await Identity.generate(), behave);
  }

  /** The class to pass to clients. */
  get WebSocket(): WebSocketClass {
    // eslint-disable-next-line @typescript-eslint/no-this-alias
    const relay = this;
    return class extends FakeSocket {
      constructor(url: string) {
        super(url, relay);
      }
    } as unknown as WebSocketClass;
  }

  async client(options: Partial<ClientOptions> = {}): Promise<Client> {
    return new Client({
      url: this.url, WebSocket: this.WebSocket, identity: await Identity.generate(), backoff: { min: 1, max: 5 }, ...options,
    });
  }

  /** Waits for the n-th connection to be logged in. */
  async conn(n = 0): Promise<FakeConn> {
    while (this.conns[n] === undefined) await new Promise<void>((resolve) => this.waiting.push(resolve));
    return this.conns[n]!;
  }

  /** Begins with a socket, and returns what takes its messages. */
  async greet(socket: FakeSocket): Promise<(data: Bytes) => Promise<void>> {
    const { version = 2, durable = true, challenge = (f: Frame) => f, confirm = (f: Frame) => f } = this.behave;
    const c = random(32);
    const conn = new FakeConn(socket, this);
    const first = newFrame(Type.handshake, { payload: c, ...(version === 2 && { sender: this.identity.public }) });
    conn.raw(encodeFrame(challenge(first)));
    let done = false;
    return async (data) => {
      const f = decodeFrame(data);
      if (done) return this.take(f, conn);
      done = true;
      const features = u32(durable ? 1 : 0);
      const last = version === 1
        ? newFrame(Type.handshake, { payload: Uint8Array.of(1) })
        : newFrame(Type.handshake, {
          payload: concat(Uint8Array.of(2), features),
          signature: await this.identity.sign(concat(
            utf8('sotto handshake v2 relay\x00'), c, f.payload.subarray(32, 64), f.sender, this.identity.public,
            Uint8Array.of(0), features,
          )),
        });
      conn.raw(encodeFrame(confirm({ ...last, sender: this.identity.public })));
      this.conns.push(conn);
      for (const wake of this.waiting.splice(0)) wake();
    };
  }

  private async take(f: Frame, conn: FakeConn): Promise<void> {
    conn.take(f);
    if (this.behave.onFrame?.(f, conn) === true || f.type !== Type.request) return;
    const { t, req, key, card } = JSON.parse(new TextDecoder().decode(f.payload)) as Record<string, string>;
    if (t === 'put_card') {
      this.cards.set(hex(f.sender), Uint8Array.from(atob(card!), (x) => x.charCodeAt(0)));
      conn.respond(f, {});
    } else if (t === 'get_card' && this.cards.has(key!)) {
      conn.respond(f, { card: base64(this.cards.get(key!)!) });
    } else if (t === 'get_card') {
      conn.send(Type.response, { payload: utf8(JSON.stringify({ req, ok: false, code: 'not-found', msg: 'not-found' })) });
    }
  }
}

/** A WebSocket without a wire. */
class FakeSocket {
  binaryType = '';
  get bufferedAmount(): number {
    return this.relay.buffered;
  }
  private readonly handlers = new Map<string, Handler[]>();
  private take: ((data: Bytes) => Promise<void>) | undefined;
  private turn: Promise<unknown>;
  private closed = false;

  constructor(readonly url: string, private readonly relay: FakeRelay) {
    this.turn = Promise.resolve().then(async () => {
      this.fire('open', {});
      this.take = await relay.greet(this);
    });
  }

  addEventListener(type: string, f: Handler): void {
    this.handlers.set(type, [...(this.handlers.get(type) ?? []), f]);
  }

  fire(type: string, event: Parameters<Handler>[0]): void {
    if (!this.closed) for (const f of this.handlers.get(type) ?? []) f(event);
  }

  send(data: Uint8Array): void {
    const copy = data.slice() as Bytes;
    this.turn = this.turn.then(() => (this.closed ? undefined : this.take!(copy)));
  }

  close(code = 1005): void {
    queueMicrotask(() => this.end(code, ''));
  }

  end(code: number, reason: string): void {
    if (this.closed) return;
    this.fire('close', { code, reason });
    this.closed = true;
  }
}
