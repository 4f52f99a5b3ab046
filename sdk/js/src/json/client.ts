import { base64, type Bytes, fromUTF8, hex, random, utf8 } from '../bytes.js';
import type { Identity, Key } from '../crypto/identity.js';
import type { BoxCipher } from '../crypto/naclbox.js';
import { asError, malformed, SottoError } from '../errors.js';
import { Emitter } from '../events.js';
import { matches } from '../filters.js';
import { untilAborted } from '../outbox.js';
import { Pacer, sleep } from '../pacer.js';
import type { Gap } from '../publications.js';
import { Retry } from '../retry.js';
import type { WebSocketClass } from '../session.js';
import { MemoryStorage, type Storage } from '../storage.js';
import { FinalError, type JsonObject, Link, refused } from './link.js';
import { askAgain, Peers } from './peers.js';

export interface JsonClientOptions {
  /** Of the relay: where it speaks json, as at the path /json. */
  url: string;
  /** Its X25519 key opens what comes in, and is told to peers. */
  identity: Identity;
  /** The address to register, bound to the key. Not given: the one that is the hash of the key. */
  address?: string;
  /** Asks the relay to have us prove that the key is ours; nobody else can register it then. */
  prove?: boolean;
  /** The key that a relay that asks for a proof must have. Not given: the one it had when it first asked. */
  relay?: Key;
  /** For a relay whose policy wants one. */
  token?: string;
  /** Where the keys of peers are pinned. Not given: in memory. */
  storage?: Storage;
  WebSocket?: WebSocketClass;
  /** How to seal: `xchacha20` for peers that want it. Both are opened. */
  cipher?: BoxCipher;
  backoff?: { min?: number; max?: number };
}

/** A message that came in. Who sent it and its id are the relay's word; that its sender has the pinned key is proved. */
export interface JsonMessage {
  from: string;
  id?: string;
  bytes: Bytes;
  text: string;
}

/** What was sent to a room or published. All of it is the relay's word. */
export interface JsonPublication {
  name: string; // of the room or topic
  from: string;
  ct: string; // as it was sent
  retained: boolean;
}

export interface JsonClientEvents {
  /** After each registration. */
  connected: { address: string; queued: number; proven: boolean };
  disconnected: { error: SottoError; retryIn: number | undefined };
  /** A message. If it has an id it is acknowledged when the listeners have returned. */
  message: JsonMessage;
  /** The recipient is not here, and the relay keeps the message. */
  queued: { to: string; id?: string };
  /** The recipient says that a message has arrived. */
  ack: { from: string; id: string };
  /** A key was pinned. */
  peer: { address: string; key: string };
  gap: Gap;
  error: Error;
}

interface Call {
  id: string;
  body: JsonObject;
  answers(m: JsonObject): boolean;
  settle(m: JsonObject | undefined, err?: SottoError): void;
}

type Listener = (p: JsonPublication) => void;

/** What relays accept by default: a longer one would end the connection. */
const maxMessage = 65_536;

/**
 * An address that is registered at a relay that speaks json, as the users of nowwx7 have
 * it. Messages are NaCl boxes. Unlike those of Client they have no receipts: that one has
 * arrived is known when its recipient says so.
 */
export class JsonClient extends Emitter<JsonClientEvents> {
  /** The address, once it was registered. */
  address: string | undefined;

  private readonly peers: Peers;
  private readonly pacer = new Pacer(18, 16);
  private readonly retry: Retry;
  private readonly life = new AbortController();
  private readonly WebSocket: WebSocketClass;
  private readonly storage: Storage;
  private readonly calls = new Set<Call>();
  private readonly topics = new Map<string, Set<Listener>>();
  private readonly rooms = new Map<string, Listener>();
  private readonly games = new Map<string, { found(peer: string): void; waits: boolean }>(); // waits: the relay has answered
  private link: Link | undefined; // that is registered
  private connected: (() => void)[] = []; // wait for that
  private sending: Promise<unknown> = Promise.resolve(); // in turn
  private running: Promise<SottoError> | undefined;

  constructor(private readonly options: JsonClientOptions) {
    super();
    const WebSocket = options.WebSocket ?? (globalThis.WebSocket as WebSocketClass | undefined);
    if (WebSocket === undefined) throw malformed('there is no WebSocket here: pass one in');
    this.WebSocket = WebSocket;
    this.storage = options.storage ?? new MemoryStorage();
    this.retry = new Retry(options.backoff?.min, options.backoff?.max);
    const { x25519, key } = options.identity;
    this.peers = new Peers(x25519, this.storage, `json/${key}/`, options.cipher ?? 'xsalsa20');
  }

  /** Our X25519 key, in base64. */
  get key(): string {
    return base64(this.options.identity.x25519.public);
  }

  /** Begins, and returns after the first registration. It keeps trying, unless it is refused for good. */
  async connect(signal?: AbortSignal): Promise<void> {
    if (this.link !== undefined) return;
    const up = new Promise<void>((resolve) => this.once('connected', () => resolve()));
    this.running ??= this.run();
    const ended = this.running.then((err) => {
      throw err;
    });
    await untilAborted(Promise.race([up, ended]), signal);
  }

  /** Ends the client. */
  async close(): Promise<void> {
    this.life.abort(new SottoError('closed', 'closed'));
    await (this.running ??= this.run());
  }

  private async run(): Promise<SottoError> {
    let why: SottoError | undefined;
    for (let attempt = 0; why === undefined; attempt++) {
      const start = Date.now();
      const end = await this.session();
      if (this.life.signal.aborted) why = asError(this.life.signal.reason);
      else if (end instanceof FinalError) why = end.reason;
      else {
        if (Date.now() - start >= this.retry.max) attempt = 0;
        const retryIn = this.retry.backoff(attempt);
        this.emit('disconnected', { error: end, retryIn });
        await this.retry.pause(retryIn, this.life.signal);
      }
    }
    this.life.abort(why);
    for (const call of this.calls) call.settle(undefined, why);
    this.emit('disconnected', { error: why, retryIn: undefined });
    return why;
  }

  /** Has one connection, and returns why it ended. */
  private async session(): Promise<SottoError | FinalError> {
    const { identity, url, address, relay, token } = this.options;
    if (this.life.signal.aborted) return asError(this.life.signal.reason);
    try {
      const link = new Link({
        url, WebSocket: this.WebSocket, key: identity.x25519, storage: this.storage, signal: this.life.signal,
        prove: this.options.prove ?? false,
        ...(address !== undefined && { address }), ...(relay && { relay }), ...(token && { token }),
        onMessage: (m) => this.receive(m),
      });
      const registered = await link.registered;
      this.up(link, registered);
      const end = await link.ended;
      this.link = undefined;
      return end;
    } catch (err) {
      return err instanceof FinalError ? err : asError(err);
    }
  }

  private up(link: Link, r: JsonClientEvents['connected']): void {
    this.link = link;
    const again = this.address !== undefined;
    this.address = r.address;
    if (again) {
      for (const topic of this.topics.keys()) {
        this.emit('gap', { topic });
        link.send({ t: 'subscribe', topic });
      }
      for (const room of this.rooms.keys()) {
        this.emit('gap', { room });
        link.send({ t: 'join_room', room });
      }
    }
    for (const call of this.calls) link.send(call.body);
    for (const [game, { waits }] of this.games) if (waits) link.send({ t: 'find_match', game }); // else it is among the calls
    for (const wake of this.connected.splice(0)) wake();
    this.emit('connected', r);
  }

  /**
   * Seals a message for an address and sends it. If no key of the recipient is known, the
   * recipient is told ours and asked, now and then, until it comes. With `acked` it returns
   * when the recipient has said that it arrived, else when it was written.
   */
  async send(to: string, body: string | Uint8Array, o: { id?: string; acked?: boolean; signal?: AbortSignal } = {}): Promise<void> {
    const data = typeof body === 'string' ? utf8(body) : new Uint8Array(body); // and not what becomes of it while we wait
    const id = o.id ?? (o.acked ? hex(random(16)) : undefined);
    const key = to === this.address ? this.options.identity.x25519.public : await this.keyOf(to, o.signal);
    const arrived = o.acked ? this.acked(to, id!, o.signal) : undefined;
    arrived?.catch(() => undefined); // it may not be sent at all
    await this.post({ t: 'send', to, pub: this.key, ...(await this.peers.seal(key, data)), ...(id !== undefined && { id }) }, o.signal);
    await arrived;
  }

  /** Tells somebody our key: a JsonClient answers with its own. */
  async announce(to: string, signal?: AbortSignal): Promise<void> {
    this.peers.asks(to);
    await this.post(this.announcement(to), signal);
  }

  /** Forgets the pinned key of an address: it has a new one, as you have made sure. */
  forget(address: string): Promise<void> {
    return this.peers.forget(address);
  }

  /** Calls f for what is published to topics that a filter matches, and returns what ends that. */
  async subscribe(filter: string, f: Listener): Promise<() => Promise<void>> {
    const there = this.topics.get(filter) ?? new Set<Listener>();
    this.topics.set(filter, there);
    there.add(f);
    const leave = () => there.delete(f) && there.size === 0 && this.topics.delete(filter);
    try {
      await this.call({ t: 'subscribe', topic: filter }, (m) => m.t === 'subscribed' && m.topic === filter);
    } catch (err) {
      leave();
      throw err;
    }
    return async () => {
      if (leave()) await this.call({ t: 'unsubscribe', topic: filter }, (m) => m.t === 'unsubscribed' && m.topic === filter);
    };
  }

  /** Publishes ct as it is: seal it, if relays are not to read it. An empty one with retain clears what was retained. */
  publish(topic: string, ct: string, o: { retain?: boolean } = {}): Promise<void> {
    return this.post({ t: 'publish', topic, ct, ...(o.retain && { retain: true }) });
  }

  /** Joins a room, calls f for what others send there, and returns how many are in it. */
  async join(room: string, f: Listener): Promise<number> {
    if (this.rooms.has(room)) throw malformed('already in that room');
    this.rooms.set(room, f);
    try {
      const answer = await this.call({ t: 'join_room', room }, (m) => m.t === 'joined_room' && m.room === room);
      return Number(answer.members);
    } catch (err) {
      this.rooms.delete(room);
      throw err;
    }
  }

  /** Sends ct as it is to all others in a room. */
  sendRoom(room: string, ct: string): Promise<void> {
    return this.post({ t: 'room_send', room, ct });
  }

  async leave(room: string): Promise<void> {
    this.rooms.delete(room);
    await this.call({ t: 'leave_room', room }, (m) => m.t === 'left_room' && m.room === room);
  }

  /** Waits for somebody who wants to play the same game, and returns the address. */
  async findMatch(game: string, signal?: AbortSignal): Promise<string> {
    if (this.games.has(game)) throw malformed('already searching for that game');
    const search = { found: (_: string): void => undefined, waits: false };
    const matched = new Promise<string>((resolve) => (search.found = resolve));
    this.games.set(game, search);
    const answers = (m: JsonObject) => (m.t === 'waiting' || m.t === 'matched') && m.game === game;
    const asked = this.call({ t: 'find_match', game }, answers, signal).then(() => (search.waits = true));
    try {
      return await untilAborted(Promise.race([matched, asked.then(() => matched)]), signal);
    } catch (err) {
      if (signal?.aborted) this.post({ t: 'cancel_match', game }).catch(() => undefined); // the end cancels it, too
      throw err;
    } finally {
      this.games.delete(game);
    }
  }

  /** Asks the relay what it can do. */
  capabilities(): Promise<JsonObject> {
    return this.call({ t: 'capabilities' }, (m) => m.t === 'capabilities');
  }

  private announcement(to: string): JsonObject {
    return { t: 'send', to, pub: this.key, nonce: '', ct: '' };
  }

  /** Returns the key of an address, and waits for it. */
  private async keyOf(to: string, signal?: AbortSignal): Promise<Bytes> {
    for (;;) {
      const key = await this.peers.lookup(to);
      if (key !== undefined) return key;
      const changed = this.peers.changed();
      await this.announce(to, signal);
      const stop = signal ? AbortSignal.any([signal, this.life.signal]) : this.life.signal;
      for (const until = Date.now() + askAgain; (await this.peers.lookup(to)) === undefined && Date.now() < until; ) {
        await Promise.race([changed, sleep(Math.min(askAgain, 250), stop)]);
      }
    }
  }

  private async acked(to: string, id: string, signal?: AbortSignal): Promise<void> {
    let off!: () => void;
    const come = new Promise<void>((resolve) => {
      off = this.on('ack', (a) => a.from === to && a.id === id && resolve());
    });
    try {
      await untilAborted(untilAborted(come, this.life.signal), signal);
    } finally {
      off();
    }
  }

  /** Sends a message, at the pace that relays allow, once there is a connection. */
  private async post(m: JsonObject, signal?: AbortSignal): Promise<void> {
    if (utf8(JSON.stringify(m)).length > maxMessage) throw new SottoError('too-large', 'more than 65,536 bytes as JSON');
    const stop = signal ? AbortSignal.any([signal, this.life.signal]) : this.life.signal;
    const turn = this.sending.then(async () => {
      await this.pacer.wait(0, stop);
      while (this.link === undefined) {
        await untilAborted(new Promise<void>((resolve) => this.connected.push(resolve)), stop);
      }
      this.link.send(m);
    });
    this.sending = turn.catch(() => undefined);
    await turn;
  }

  /** Asks, and waits for an answer, also after a reconnect. The errors of relays repeat the id. */
  private async call(body: JsonObject, answers: Call['answers'], signal?: AbortSignal): Promise<JsonObject> {
    const id = hex(random(8));
    let call!: Call;
    const answer = new Promise<JsonObject>((resolve, reject) => {
      call = { id, body: { ...body, id }, answers, settle: (m, err) => (m === undefined ? reject(err!) : resolve(m)) };
    });
    answer.catch(() => undefined); // whoever waits for it hears of it
    try {
      await this.post(call.body, signal);
      this.calls.add(call);
      return await untilAborted(answer, signal);
    } finally {
      this.calls.delete(call);
    }
  }

  private async receive(m: JsonObject): Promise<void> {
    const text = (name: string) => (typeof m[name] === 'string' ? m[name] : '');
    const call = [...this.calls].find((c) => (m.t === 'error' ? c.id === m.id : c.answers(m)));
    if (call !== undefined) call.settle(m.t === 'error' ? undefined : m, refused(text('msg')));
    switch (m.t) {
      case 'deliver':
        return this.deliver(text('from'), text('id'), text('pub'), text('nonce'), text('ct'));
      case 'ack':
        return this.emit('ack', { from: text('from'), id: text('id') });
      case 'queued':
        return this.emit('queued', { to: text('to'), ...(text('id') && { id: text('id') }) });
      case 'room_deliver':
        return this.hand([this.rooms.get(text('room'))], { name: text('room'), from: text('from'), ct: text('ct'), retained: false });
      case 'message': {
        const p = { name: text('topic'), from: text('from'), ct: text('ct'), retained: m.retained === true };
        return this.hand([...this.topics].filter(([f]) => matches(f, p.name)).flatMap(([, set]) => [...set]), p);
      }
      case 'matched':
        return this.games.get(text('game'))?.found(text('peer'));
      case 'error':
        if (call === undefined) this.emit('error', refused(text('msg')));
    }
  }

  private hand(to: (Listener | undefined)[], p: JsonPublication): void {
    for (const f of to) {
      void (async () => f?.(p))().catch((err: unknown) => this.emit('error', asError(err)));
    }
  }

  private async deliver(from: string, id: string, pub: string, nonce: string, ct: string): Promise<void> {
    try {
      const { key, fresh } = await this.peers.keyOf(from, pub);
      if (pub !== '' && ct === '') {
        if (fresh) await this.pin(from, key);
        if (from !== this.address && this.peers.answers(from)) this.post(this.announcement(from)).catch(() => undefined); // the end
        return;
      }
      const bytes = await this.peers.open(key, nonce, ct);
      if (fresh) await this.pin(from, key); // once it has opened something
      if (bytes === undefined) return;
      const message: JsonMessage = {
        from, bytes, text: fromUTF8(bytes) ?? new TextDecoder().decode(bytes), ...(id && { id }),
      };
      void this.handOver(message);
    } catch (err) {
      this.emit('error', asError(err));
    }
  }

  private async handOver(m: JsonMessage): Promise<void> {
    try {
      await Promise.all(this.listenersOf('message').map(async (f) => f(m)));
      if (m.id !== undefined) await this.post({ t: 'ack', to: m.from, id: m.id });
    } catch (err) {
      this.emit('error', asError(err));
    }
  }

  private async pin(address: string, key: Bytes): Promise<void> {
    await this.peers.pin(address, key);
    this.emit('peer', { address, key: base64(key) });
  }
}
