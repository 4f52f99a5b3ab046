// Applications that give up, change their minds or reuse their buffers; clocks that are put
// right; pages that overlap; and relays that ask for too much.

import assert from 'node:assert/strict';
import { afterEach, mock, test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import { utf8 } from '../src/bytes.js';
import { decodeCard, newCard, newCardSecret } from '../src/crypto/card.js';
import { GroupKey } from '../src/crypto/group.js';
import { Groups } from '../src/groups.js';
import {
  type ClientOptions, Identity, MemoryStorage, type SottoError, WebStorage, type WebSocketClass,
} from '../src/index.js';
import { JsonClient } from '../src/json/index.js';
import { Outbox } from '../src/outbox.js';
import { Pacer } from '../src/pacer.js';
import { type Frame, newFrame, Type } from '../src/wire/frame.js';
import { type Behaviour, type FakeConn, FakeRelay } from './fakerelay.js';
import { next, until } from './relay.js';

const clients: { close(): Promise<void> }[] = [];
const surprises: unknown[] = []; // rejections that nobody waits for: they end a program
process.on('unhandledRejection', (err) => surprises.push(err));

afterEach(async () => {
  mock.timers.reset();
  await Promise.all(clients.splice(0).map((c) => c.close()));
  await wait(10);
  assert.deepEqual(surprises.splice(0), []);
});

async function start(behave: Behaviour = {}, options: Partial<ClientOptions> = {}) {
  const relay = await FakeRelay.start(behave);
  const client = await relay.client(options);
  clients.push(client);
  return { relay, client };
}

const never = new AbortController().signal;
const aborted = AbortSignal.abort();
const clear = { clear: true } as const;
const turn = () => new Promise((resolve) => setImmediate(resolve));

/** Returns the requests with a verb that came. */
function asked(conn: FakeConn, verb: string): Frame[] {
  return conn.got.filter((f) => f.type === Type.request && JSON.parse(Buffer.from(f.payload).toString()).t === verb);
}

test('who has given up before it began is told so, and nothing is left behind', async () => {
  const { relay, client } = await start();
  await assert.rejects(client.connect(aborted), { name: 'AbortError' });
  const { key } = await Identity.generate();
  await assert.rejects(client.send(key, 'x', { signal: aborted }), { name: 'AbortError' });
  await assert.rejects(client.sendFile(key, new Blob(['x']), { name: 'x', signal: aborted }), { name: 'AbortError' });
  await assert.rejects(client.findMatch('x', aborted), { name: 'AbortError' });
  await assert.rejects(client.join('x', () => undefined, { ...clear, signal: aborted }), { name: 'AbortError' });
  await assert.rejects(client.subscribe('x', () => undefined, { ...clear, signal: aborted }), { name: 'AbortError' });
  await client.connect();
  await client.close();
  const conn = await relay.conn();
  assert.deepEqual(conn.got.filter((f) => f.type === Type.sealed), []);
  assert.deepEqual([...asked(conn, 'find_match'), ...asked(conn, 'join_room'), ...asked(conn, 'subscribe')], []);
});

test('who gives up entering is not left inside', async () => {
  const { relay, client } = await start({ onFrame: () => true });
  await client.connect();
  const conn = await relay.conn();
  const stop = new AbortController();
  const given = [
    client.subscribe('t', () => undefined, { ...clear, signal: stop.signal }), client.join('r', () => undefined, { ...clear, signal: stop.signal }),
  ];
  await conn.request('join_room');
  stop.abort();
  for (const g of given) await assert.rejects(g, { name: 'AbortError' });
  await conn.request('unsubscribe');
  await conn.request('leave_room');
});

test('what cannot be sent is a promise that is not kept, and no exception', async () => {
  const { client } = await start();
  for (const body of [{ json: undefined }, 'lone \ud800', { name: '../x', bytes: utf8('x') }]) {
    const sent = client.send(client.key, body);
    await assert.rejects(sent, { code: 'malformed' });
  }
});

test('a buffer may be used again once a call has returned', async () => {
  const { relay, client } = await start();
  const { key } = await Identity.generate();
  const buffer = utf8('abc');
  const sent = [
    client.send(key, buffer, { protection: 'clear', until: 'queued' }),
    client.send(key, { name: 'f', bytes: buffer }, { protection: 'signed', until: 'queued' }),
    client.publish('t', buffer, clear),
  ];
  buffer.fill(0);
  await client.connect();
  const conn = await relay.conn();
  for (const type of [Type.data, Type.signedData, Type.publish]) {
    assert.equal(Buffer.from((await conn.frame(type)).payload.subarray(-3)).toString(), 'abc');
  }
  await client.close();
  await assert.rejects(sent[2]!, { code: 'closed' });
});

test('a client ends while it waits for a token', { timeout: 60_000 }, async () => {
  const { client } = await start({}, { token: () => new Promise(() => undefined) });
  const ended = assert.rejects(client.connect(), { code: 'closed' });
  await turn();
  await client.close();
  await ended;
});

test('what is asked for by itself is asked once for each login, though the relay does not answer', async () => {
  let answers = true;
  const { relay, client } = await start({
    onFrame: (f, conn) => {
      if (f.type === Type.request && answers) conn.respond(f, { members: 1 });
      return true;
    },
  });
  await client.connect();
  await client.subscribe('t', () => undefined, clear);
  await client.join('r', () => undefined, clear);
  answers = false;
  const search = client.findMatch('g'); // is sent again until it was answered, and that is enough
  for (let n = 0; n < 5; n++) {
    const conn = await relay.conn(n);
    await conn.request('find_match');
    conn.end();
  }
  const last = await relay.conn(5);
  await last.request('find_match');
  assert.deepEqual(['subscribe', 'join_room', 'find_match'].map((verb) => asked(last, verb).length), [1, 1, 1]);
  last.respond(asked(last, 'find_match')[0]!, { t: 'waiting', game: 'g' });
  await turn();
  last.end();
  const again = await relay.conn(6);
  await again.request('find_match'); // it waits there, so it is asked for anew
  const { key } = await Identity.generate();
  again.respond(asked(again, 'find_match')[0]!, { t: 'matched', game: 'g', peer: key });
  assert.equal(await search, key);
  assert.equal(asked(again, 'find_match').length, 1);
});

test('a clock that is put back does not keep messages waiting', async () => {
  mock.timers.enable({ apis: ['Date'], now: 10 * 3_600_000 });
  const pacer = new Pacer();
  await pacer.wait(1, never);
  mock.timers.setTime(9 * 3_600_000);
  let passed = false;
  void pacer.wait(1, never).then(() => (passed = true));
  await turn();
  assert.equal(passed, true);
});

test('a card that was made while the clock was ahead is replaced', async () => {
  class Disk extends MemoryStorage {
    override readonly persistent: boolean = true;
  }
  const [storage, identity] = [new Disk(), await Identity.generate()];
  const ahead = Date.now() + 30 * 24 * 3_600_000;
  const secret = newCardSecret();
  const early = await newCard(identity, BigInt(ahead), ahead, ahead + 1000, secret);
  await storage.set(`card/${identity.key}/${String(ahead).padStart(20, '0')}`, { card: early.encoded, secret });
  const { relay, client } = await start({}, { storage, identity });
  await client.connect();
  await until(() => relay.cards.has(client.key));
  const card = await decodeCard(relay.cards.get(client.key)!);
  assert.ok(card.notBefore <= Date.now());
  assert.ok(card.serial > early.serial, 'who has seen the other one takes it');
});

test('two pages that overlap keep the messages of both', async () => {
  const storage = new MemoryStorage();
  const pages = [new Outbox(storage, 'out/', 10, 1 << 20), new Outbox(storage, 'out/', 10, 1 << 20)];
  await Promise.all(pages.map((p) => p.load()));
  const frame = (n: number) => newFrame(Type.sealed, { id: new Uint8Array(16).fill(n), payload: new Uint8Array(40) });
  for (const [n, page] of pages.entries()) await page.add(frame(n + 1), true);
  const third = new Outbox(storage, 'out/', 10, 1 << 20);
  await third.load();
  assert.equal(third.size.messages, 2);
});

test('a key of a group that could not be kept is kept when it comes again', async () => {
  const storage = new MemoryStorage();
  const options = {
    self: (await Identity.generate()).key, storage, prefix: 'group/', accept: () => true, send: async () => undefined,
    onKey: () => undefined, onError: (err: SottoError) => assert.fail(err),
  };
  const groups = new Groups(options);
  const set = storage.set.bind(storage);
  storage.set = () => Promise.reject(new Error('full'));
  const [owner, key] = [(await Identity.generate()).key, GroupKey.generate()];
  await assert.rejects(groups.take(owner, key.encode()), /full/);
  storage.set = set;
  await groups.take(owner, key.encode());
  const later = new Groups(options);
  await later.load();
  assert.deepEqual(later.list().map((g) => g.id), [key.id]);
});

test('what is damaged in a web storage keeps a client from neither starting nor sending what is not', async () => {
  const values = new Map<string, string>();
  const area = {
    get length() {
      return values.size;
    },
    key: (i: number) => [...values.keys()][i] ?? null,
    getItem: (name: string) => values.get(name) ?? null,
    setItem: (name: string, value: string) => void values.set(name, value),
    removeItem: (name: string) => void values.delete(name),
  };
  const identity = await Identity.generate({ extractable: true });
  const { relay, client } = await start({}, { identity, storage: new WebStorage(area) });
  const { key } = await Identity.generate();
  await client.send(key, utf8('kept'), { protection: 'clear', until: 'queued' });
  await client.close();
  for (const what of ['outbox', 'seen', 'group', 'card']) values.set(`sotto:${what}/${identity.key}/000000000000`, '{"truncated');
  values.set(`sotto:card/${identity.key}/1`, 'null');
  values.set('sotto:servers', '{"discovered":[{"url":7}],"selected":null}');
  const again = await relay.client({ identity, storage: new WebStorage(area) });
  clients.push(again);
  await again.connect();
  const f = await (await relay.conn()).frame(Type.data);
  assert.equal(Buffer.from(f.payload.subarray(32)).toString(), 'kept');
  await until(() => relay.cards.has(identity.key));
});

test('a relay gets back no more than a PING has', async () => {
  const { relay, client } = await start();
  const told = next<Error>((f) => client.on('disconnected', (e) => f(e.error)));
  await client.connect();
  const conn = await relay.conn();
  conn.send(Type.ping, { payload: new Uint8Array(1 << 20) });
  assert.match((await told)[0]!.message, /malformed: a PING/);
  assert.equal(conn.got.filter((f) => f.type === Type.pong).length, 0);
});

test('a relay that asks and does not take the answers is left', async () => {
  const { relay, client } = await start();
  const told = next<SottoError>((f) => client.on('disconnected', (e) => f(e.error)));
  await client.connect();
  relay.buffered = (64 << 20) + 1;
  (await relay.conn()).send(Type.ping, { payload: new Uint8Array(8) });
  assert.equal((await told)[0]!.code, 'overloaded');
  relay.buffered = 0;
});

test('a relay that sends more small frames than can be looked at is left, in time', { timeout: 120_000 }, async () => {
  const { relay, client } = await start();
  const told = next<SottoError>((f) => client.on('disconnected', (e) => f(e.error)));
  await client.connect();
  const conn = await relay.conn();
  const { public: sender } = await Identity.generate();
  const signature = new Uint8Array(64).fill(1);
  const f = newFrame(Type.signedData, { sender, signature, payload: Uint8Array.from(Buffer.from(client.key, 'hex')) });
  for (let i = 0; i < 120_000; i++) conn.send(f.type, f);
  assert.equal((await told)[0]!.code, 'overloaded');
  await relay.conn(1); // and comes back
});

/** A relay that speaks json as far as a client has to be registered, and does then as it is told. */
function jsonRelay(onMessage: (m: Record<string, string>, send: (m: object) => void, end: () => void) => void): WebSocketClass {
  return class {
    binaryType = '';
    readonly bufferedAmount = 0;
    private readonly listeners = new Map<string, ((e: object) => void)[]>();
    private over = false;
    constructor() {
      setImmediate(() => this.fire('open', {}));
    }
    addEventListener(type: string, f: (e: object) => void): void {
      this.listeners.set(type, [...(this.listeners.get(type) ?? []), f]);
    }
    send(text: string): void {
      const m = JSON.parse(text) as Record<string, string>;
      const answer = (a: object) => setImmediate(() => this.fire('message', { data: JSON.stringify(a) }));
      if (m.t === 'register') answer({ t: 'registered', addr: 'us', queued: 0 });
      onMessage(m, answer, () => this.close());
    }
    close(): void {
      setImmediate(() => {
        if (!this.over) this.fire('close', { code: 1006 });
        this.over = true;
      });
    }
    private fire(type: string, e: object): void {
      for (const f of this.listeners.get(type) ?? []) f(e);
    }
  } as unknown as WebSocketClass;
}

async function jsonClient(WebSocket: WebSocketClass): Promise<JsonClient> {
  const c = new JsonClient({ url: 'ws://fake.example/json', identity: await Identity.generate(), WebSocket, backoff: { min: 1, max: 5 } });
  clients.push(c);
  return c;
}

test('json: an acknowledgement that is waited for in vain surprises nobody', async () => {
  const c = await jsonClient(jsonRelay((m, send) => m.t === 'send' && send({ t: 'deliver', from: m.to, pub: c.key, nonce: '', ct: '' })));
  const stop = new AbortController();
  const given = c.send('somebody', 'x', { acked: true, signal: stop.signal });
  stop.abort();
  await assert.rejects(given, { name: 'AbortError' });
  await c.connect();
  await assert.rejects(c.send('somebody', new Uint8Array(60_000), { acked: true }), { code: 'too-large' });
});

test('json: a WebSocket that cannot be made is told, and tried again', async () => {
  let tries = 0;
  const c = await jsonClient(class {
    constructor() {
      tries++;
      throw new Error('mixed content');
    }
  } as unknown as WebSocketClass);
  const told = next<{ error: Error; retryIn?: number }>((f) => c.on('disconnected', f));
  const connecting = assert.rejects(c.connect(), { code: 'closed' });
  assert.match((await told)[0]!.error.message, /mixed content/);
  await until(() => tries > 1);
  await c.close();
  await connecting;
});

test('json: who has found somebody searches no more, and who waits does so once', async () => {
  const conns: string[][] = [];
  let answer: object = { t: 'matched', game: 'g', peer: 'them' };
  let cut!: () => void;
  const c = await jsonClient(jsonRelay((m, send, end) => {
    cut = end;
    if (m.t === 'register') conns.push([]);
    if (m.t === 'capabilities') return send({ t: 'capabilities' });
    if (m.t !== 'find_match') return;
    conns.at(-1)!.push(m.game!);
    send(answer);
  }));
  const before = c.findMatch('g'); // which goes out once there is a connection
  await c.connect();
  assert.equal(await before, 'them');
  const back = async () => {
    await c.capabilities();
    const again = next<unknown>((f) => c.on('connected', f));
    cut();
    await again;
    await c.capabilities(); // which is answered after what was asked before
    return conns.at(-1);
  };
  assert.deepEqual(conns, [['g']]);
  assert.deepEqual(await back(), []);
  answer = { t: 'waiting', game: 'h' };
  const stop = new AbortController();
  const waiting = c.findMatch('h', stop.signal);
  assert.deepEqual(await back(), ['h']);
  stop.abort();
  await assert.rejects(waiting, { name: 'AbortError' });
  assert.deepEqual(await back(), []);
});
