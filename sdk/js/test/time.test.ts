// What takes minutes or months.

import assert from 'node:assert/strict';
import { afterEach, mock, test } from 'node:test';
import { fromBase64, view } from '../src/bytes.js';
import { decodeCard } from '../src/crypto/card.js';
import { derivedSealKey, type SealKey } from '../src/crypto/seal.js';
import { Identity, MemoryStorage, type SottoError } from '../src/index.js';
import { Keyring } from '../src/keyring.js';
import { Requests } from '../src/requests.js';
import { Retry } from '../src/retry.js';
import { Session, type SessionEnd } from '../src/session.js';
import { Type } from '../src/wire/frame.js';
import { FakeRelay } from './fakerelay.js';

afterEach(() => mock.timers.reset());

const day = 24 * 3600 * 1000;
const turn = () => new Promise((resolve) => setImmediate(resolve));

/** A storage that lasts. */
class Disk extends MemoryStorage {
  override readonly persistent: boolean = true;
}

/** Requests that note what is put. */
class FakeRequests extends Requests {
  readonly put: bigint[] = [];
  refuse = false;
  override async ask(verb: string, fields: Record<string, unknown> = {}): Promise<Record<string, unknown>> {
    assert.equal(verb, 'put_card');
    const card = await decodeCard(fromBase64(fields.card as string)!);
    assert.ok(card.notBefore <= Date.now() && Date.now() <= card.notAfter);
    if (this.refuse) {
      this.refuse = false;
      const { SottoError } = await import('../src/errors.js');
      throw new SottoError('denied', 'a card with a higher serial is here', true);
    }
    this.put.push(card.serial);
    return {};
  }
}

test('a card is renewed at half time, and its keys are erased when nothing sealed to it can come', async () => {
  const start = 1_800_000_000_000;
  mock.timers.enable({ apis: ['Date', 'setInterval'], now: start });
  const [identity, storage, requests] = [await Identity.generate(), new Disk(), new FakeRequests(() => undefined)];
  const errors: SottoError[] = [];
  const open = () => new Keyring(identity, storage, 'card/', requests, (e) => errors.push(e));
  let keyring = open();
  const kept = async () => (await storage.list('card/')).map(([name]) => Number(name.slice(5)) - start);
  for (let d = 0; d <= 200; d++) {
    mock.timers.setTime(start + d * day);
    if (d % 30 === 7) {
      keyring.close();
      keyring = open(); // another page
    }
    await keyring.announce();
    const serials = [...new Set(requests.put)].map((s) => Number(s) - start);
    assert.deepEqual(serials, [0, 45, 90, 135, 180].filter((at) => at <= d).map((at) => at * day), `day ${d}`);
    assert.deepEqual(await kept(), serials.filter((at) => at + (90 + 15) * day >= d * day), `day ${d}`);
  }
  keyring.close();
  assert.deepEqual(errors, []);
});

test('a card of another client with our identity is outdone, now and then', async () => {
  const start = 1_800_000_000_000;
  mock.timers.enable({ apis: ['Date', 'setInterval'], now: start });
  const [identity, requests] = [await Identity.generate(), new FakeRequests(() => undefined)];
  const keyring = new Keyring(identity, new Disk(), 'card/', requests, (e) => assert.fail(e));
  requests.refuse = true;
  await keyring.announce(); // too young
  assert.deepEqual(requests.put, []);
  mock.timers.setTime(start + 3_600_000);
  requests.refuse = true;
  await keyring.announce();
  assert.deepEqual(requests.put, [BigInt(start + 3_600_000)]);
  keyring.close();
});

test('without a storage that lasts, the keys are the same for every page', async () => {
  const now = 1_800_000_000_000;
  mock.timers.enable({ apis: ['Date', 'setInterval'], now });
  const seed = Uint8Array.from({ length: 32 }, (_, i) => i + 1);
  const put: bigint[][] = [];
  const ids: string[][] = [];
  for (let page = 0; page < 2; page++) {
    const requests = new FakeRequests(() => undefined);
    const keyring = new Keyring(await Identity.fromSeed(seed), new MemoryStorage(), 'card/', requests, (e) => assert.fail(e));
    await keyring.announce();
    const keys = await keyring.openKeys(new Uint8Array(8).fill(1));
    put.push(requests.put);
    ids.push(keys.map((k) => Buffer.from(k.id).toString('hex') + k.suite));
    keyring.close();
  }
  assert.equal(put[0]!.length, 1);
  assert.deepEqual(put[0], put[1]);
  assert.deepEqual(ids[0]!.length, 6); // three cards of two suites
  assert.deepEqual(ids[0], ids[1]);
  // As in Go: number n begins n half lives after 1970, and a time of the identity's own later.
  const half = 45 * day;
  const shift = Number(view((await Identity.fromSeed(seed)).public).getBigUint64(0) % BigInt(half));
  assert.equal(Number(put[0]![0]) % half, shift % half);
  assert.ok(now - Number(put[0]![0]) < half);
});

test('keys of zero id are the derived ones, and need no card', async () => {
  const identity = await Identity.generate();
  const keyring = new Keyring(identity, new MemoryStorage(), 'card/', new FakeRequests(() => undefined), (e) => assert.fail(e));
  const to: SealKey = derivedSealKey(identity.public);
  const keys = await keyring.openKeys(to.id);
  assert.deepEqual(keys.map((k) => [k.suite, k.pair?.public]), [[2, to.public]]);
});

test('a relay that is silent is given up after 75 s, and one that answers is not', async () => {
  for (const answers of [true, false]) {
    mock.timers.enable({ apis: ['Date', 'setInterval', 'setTimeout'] });
    const relay = await FakeRelay.start({
      onFrame: (f, conn) => {
        if (f.type === Type.ping && answers) conn.send(Type.pong, { payload: f.payload });
        return true;
      },
    });
    const stop = new AbortController();
    const session = new Session({
      url: relay.url, WebSocket: relay.WebSocket, identity: await Identity.generate(), allowLegacy: false, signal: stop.signal,
      onFrame: () => undefined,
    });
    let end: SessionEnd | undefined;
    void session.ended.then((e) => (end = e));
    await session.ready;
    for (let s = 0; s < 130; s += 10) {
      mock.timers.tick(10_000);
      for (let i = 0; i < 20; i++) await turn();
      if (s < 75) assert.equal(end, undefined, `${s} s`);
    }
    assert.equal(end?.reason.code, answers ? undefined : 'disconnected');
    assert.ok((await relay.conn()).got.filter((f) => f.type === Type.ping).length >= 2);
    stop.abort();
    mock.timers.tick(2000);
    mock.timers.reset();
  }
});

test('when the network is another one, a relay that does not answer is given up after 10 s', async (t) => {
  const browser = new EventTarget();
  const globals = ['addEventListener', 'removeEventListener'] as const;
  for (const name of globals) Object.assign(globalThis, { [name]: browser[name].bind(browser) });
  t.after(() => globals.forEach((name) => Reflect.deleteProperty(globalThis, name)));
  for (const type of ['online', 'offline', 'visibilitychange']) {
    for (const answers of [true, false]) {
      mock.timers.enable({ apis: ['Date', 'setInterval', 'setTimeout'] });
      const relay = await FakeRelay.start({ onFrame: (f, conn) => (answers && conn.send(Type.pong, { payload: f.payload }), true) });
      const stop = new AbortController();
      const session = new Session({
        url: relay.url, WebSocket: relay.WebSocket, identity: await Identity.generate(), allowLegacy: false, signal: stop.signal,
        onFrame: () => undefined,
      });
      const ends: string[] = [];
      void session.ended.then((e) => ends.push(e.reason.code));
      await session.ready;
      for (let n = 0; n < 2; n++) browser.dispatchEvent(new Event(type)); // the second one gives no more time
      await (await relay.conn()).frame(Type.ping, 1);
      mock.timers.tick(9_999);
      await turn();
      assert.deepEqual(ends, []);
      browser.dispatchEvent(new Event(type));
      await (await relay.conn()).frame(Type.ping, 2);
      mock.timers.tick(1);
      mock.timers.tick(0); // the socket does not close by itself
      await turn();
      assert.deepEqual(ends, answers ? [] : ['disconnected'], type);
      stop.abort();
      mock.timers.tick(2000);
      mock.timers.reset();
    }
  }
});

test('pings of the relay are answered', async () => {
  const relay = await FakeRelay.start();
  const stop = new AbortController();
  const session = new Session({
    url: relay.url, WebSocket: relay.WebSocket, identity: await Identity.generate(), allowLegacy: false, signal: stop.signal,
    onFrame: () => assert.fail('not for others'),
  });
  await session.ready;
  const conn = await relay.conn();
  conn.send(Type.ping, { payload: Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8) });
  assert.deepEqual((await conn.frame(Type.pong)).payload, Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8));
  stop.abort();
  assert.equal((await session.ended).reason.code, 'closed');
});

test('a handshake that is not finished in 10 s ends the connection', async () => {
  mock.timers.enable({ apis: ['Date', 'setInterval', 'setTimeout'] });
  const relay = await FakeRelay.start();
  relay.greet = () => new Promise(() => undefined);
  const session = new Session({
    url: relay.url, WebSocket: relay.WebSocket, identity: await Identity.generate(), allowLegacy: false,
    signal: new AbortController().signal, onFrame: () => undefined,
  });
  await turn();
  mock.timers.tick(10_000);
  await turn();
  mock.timers.tick(1);
  await assert.rejects(session.ready, (e: SessionEnd) => e.reason.code === 'timeout');
});

test('pauses between attempts are random, and bounded', () => {
  const retry = new Retry(500, 30_000);
  for (const [attempt, most] of [[0, 500], [3, 4000], [6, 30_000], [1000, 30_000]] as const) {
    const waits = Array.from({ length: 500 }, () => retry.backoff(attempt));
    assert.ok(waits.every((w) => w >= 0 && w <= most));
    assert.ok(Math.max(...waits) > most / 2 && Math.min(...waits) < most / 2);
  }
});
