import assert from 'node:assert/strict';
import { afterEach, mock, test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import { type Bytes, concat, equal, hex, isZero, u16, utf8 } from '../src/bytes.js';
import { decodeCard, newCard, newCardSecret, openKeysOf, type Card, type CardSecret } from '../src/crypto/card.js';
import { encrypt } from '../src/crypto/encrypted.js';
import { newID } from '../src/crypto/identity.js';
import { derivedSealKey, openSealed, seal } from '../src/crypto/seal.js';
import { Client, type ClientOptions, Identity, type Letter, MemoryStorage, type Receipt, SottoError } from '../src/index.js';
import { type Frame, newFrame, Type } from '../src/wire/frame.js';
import { ackToSign, encodePublication, frameToSign } from '../src/wire/payload.js';
import { type Behaviour, FakeRelay } from './fakerelay.js';
import { next, until } from './relay.js';

const clients: Client[] = [];

afterEach(async () => {
  mock.timers.reset();
  await Promise.all(clients.splice(0).map((c) => c.close()));
});

async function start(behave: Behaviour = {}, options: Partial<ClientOptions> = {}) {
  const relay = await FakeRelay.start(behave);
  const client = await relay.client(options);
  clients.push(client);
  return { relay, client };
}

/** Returns a SEALED frame from somebody to a client. */
async function letter(from: Identity, to: string, text: string, fields: Partial<Frame> = {}): Promise<Frame> {
  const id = fields.id ?? newID();
  const owner = Uint8Array.from(Buffer.from(to, 'hex'));
  const sealed = await seal(from, derivedSealKey(owner), id, { type: 1, data: utf8(text) });
  return newFrame(Type.sealed, { flags: 1, id, sender: from.public, ...sealed, ...fields });
}

test('a relay that cannot prove its key is refused for good', async () => {
  for (const behave of [
    { confirm: (f: Frame) => ({ ...f, signature: new Uint8Array(64) }) },
    { confirm: (f: Frame) => ({ ...f, payload: Uint8Array.of(1) }) },
    { challenge: (f: Frame) => ({ ...f, sender: Uint8Array.of(1, ...new Uint8Array(31)) }) },
    { version: 1 as const },
  ]) {
    const { client, relay } = await start(behave);
    await assert.rejects(client.connect(), (e: SottoError) => ['bad-signature', 'denied', 'weak-key', 'legacy-relay'].includes(e.code));
    assert.ok(relay.conns.length <= 1);
  }
});

test('a relay that spoke v2 once is not spoken to in v1, and keeps its key', async () => {
  const storage = new MemoryStorage();
  const { relay, client } = await start({}, { storage });
  await client.connect();
  await client.close();
  relay.behave = { version: 1 };
  const second = await relay.client({ storage, allowLegacy: true });
  await assert.rejects(second.connect(), { code: 'legacy-relay' });
  const other = await FakeRelay.start();
  const third = await other.client({ storage });
  await assert.rejects(third.connect(), { code: 'key-mismatch' });
  // Who pins knows better; and what was seen can be forgotten.
  const fourth = await other.client({ storage, relay: hex(other.identity.public) });
  await fourth.connect();
  await fourth.close();
  const fifth = await other.client({ storage });
  await assert.rejects(fifth.connect(), { code: 'key-mismatch' });
  await fifth.forgetRelay(other.url);
  const sixth = await other.client({ storage });
  await sixth.connect();
  await sixth.close();
  await assert.rejects(sixth.connect(), { code: 'closed' });
});

test('with a legacy relay nothing is sealed, and what is signed is sent without an id', async () => {
  const { relay, client } = await start({ version: 1 }, { allowLegacy: true });
  const told = next<{ version: number; key?: string }>((f) => client.on('connected', f));
  await client.connect();
  assert.equal((await told)[0]!.version, 1);
  const { key } = await Identity.generate();
  await assert.rejects(client.send(key, 'sealed'), { code: 'legacy-session' });
  await assert.rejects(client.publish('a', 'b', { clear: true }), { code: 'legacy-session' });
  assert.equal((await client.send(key, 'signed', { protection: 'signed', until: 'read' })).status, 'written');
  const f = await (await relay.conn()).frame(Type.signedData);
  assert.ok(isZero(f.id) && f.flags === 0);
});

test('frames that are no frames end the connection, and the client comes back', async () => {
  const { relay, client } = await start();
  await client.connect();
  const lost = next<{ error: SottoError; retryIn?: number }>((f) => client.on('disconnected', f));
  (await relay.conn()).raw('text');
  const [{ error, retryIn }] = await lost as [{ error: SottoError; retryIn?: number }];
  assert.equal(error.code, 'malformed');
  assert.ok(retryIn! >= 0);
  await relay.conn(1);
});

test('malformed payloads and unknown types are passed over', async () => {
  const { relay, client } = await start();
  const errors: Error[] = [];
  client.on('error', (e) => errors.push(e));
  await client.connect();
  const conn = await relay.conn();
  for (const type of [Type.receipt, Type.error, Type.response, Type.message, Type.sealed, Type.data, Type.signedData, Type.encryptedData]) {
    conn.send(type, { payload: Uint8Array.of(1) });
  }
  conn.send(0x7f, { payload: Uint8Array.of(1) });
  conn.send(Type.nodeInfo, { payload: Uint8Array.of(3, 0) });
  const from = await Identity.generate();
  const got = next<Letter>((f) => client.on('message', f));
  const f = await letter(from, client.key, 'still here');
  conn.send(f.type, f);
  assert.equal((await got)[0]!.text, 'still here');
  assert.equal(errors.length, 9);
  assert.equal(relay.conns.length, 1);
});

test('a letter is handed over once and acknowledged, however often it comes', async () => {
  const { relay, client } = await start();
  const from = await Identity.generate();
  const texts: string[] = [];
  let release!: () => void;
  const held = new Promise<void>((resolve) => (release = resolve));
  client.on('message', async (l) => {
    texts.push(l.text);
    if (l.text === 'first') await held;
  });
  await client.connect();
  const conn = await relay.conn();
  const [first, second] = [await letter(from, client.key, 'first'), await letter(from, client.key, 'second')];
  for (const f of [first, second, first]) conn.send(f.type, f);
  const spare = await conn.frame(Type.ack); // of the two that the relay keeps now; nothing was read yet
  assert.deepEqual([hex(spare.payload.subarray(32, 48)), isZero(spare.payload.subarray(48))], [hex(first.id), true]);
  await conn.seen();
  assert.deepEqual(texts, ['first']);
  assert.equal(conn.got.filter((f) => f.type === Type.ack).length, 1);
  conn.end(); // and the relay brings both again
  const again = await relay.conn(1);
  for (const f of [first, second]) again.send(f.type, f);
  await again.seen();
  release();
  const { payload } = await again.frame(Type.ack);
  await until(() => texts.length > 1 && again.got.filter((f) => f.type === Type.ack).reduce((n, f) => n + f.payload.length, 0) >= 224);
  assert.deepEqual(texts, ['first', 'second']);
  const acks = concat(payload, ...again.got.filter((f) => f.type === Type.ack).slice(1).map((f) => f.payload));
  assert.equal(acks.length, 2 * 112);
  assert.deepEqual([hex(acks.subarray(32, 48)), hex(acks.subarray(144, 160))], [hex(first.id), hex(second.id)]);
  again.send(first.type, first); // once more: it is remembered
  await again.frame(Type.ack, again.got.filter((f) => f.type === Type.ack).length);
  assert.deepEqual(texts, ['first', 'second']);
});

test('ephemeral letters and those without an id are not acknowledged, and forged ones are dropped', async () => {
  const { relay, client } = await start();
  const [from, other] = [await Identity.generate(), await Identity.generate()];
  const errors: string[] = [];
  client.on('error', (e) => errors.push((e as SottoError).code));
  const got = next<Letter>((f) => client.on('message', f), 2);
  await client.connect();
  const conn = await relay.conn();
  const good = await letter(from, client.key, 'ephemeral', { flags: 3 });
  const forged = await letter(from, client.key, 'forged');
  const elsewhere = await letter(from, other.key, 'for somebody else');
  conn.send(forged.type, { ...forged, sender: other.public });
  conn.send(forged.type, { ...forged, id: newID() });
  conn.send(elsewhere.type, elsewhere);
  conn.send(good.type, good);
  conn.send(Type.data, { sender: from.public, payload: concat(Uint8Array.from(Buffer.from(client.key, 'hex')), utf8('clear')) });
  assert.deepEqual((await got).map((l) => [l.text, l.protection]), [['ephemeral', 'sealed'], ['clear', 'clear']]);
  assert.deepEqual(errors, ['bad-signature', 'bad-signature', 'unknown-key']);
  await until(() => conn.got.filter((f) => f.type === Type.ack).reduce((n, f) => n + f.payload.length, 0) >= 336);
  // What does not open is acknowledged: it would come again for ever. But it was not read.
  const acks = concat(...conn.got.filter((f) => f.type === Type.ack).map((f) => f.payload));
  assert.equal(acks.length, 3 * 112);
  for (const end of [112, 224, 336]) assert.ok(isZero(acks.subarray(end - 64, end)));
});

test('a ciphertext that comes again under another id gets no signature for that', async () => {
  const [from, self] = [await Identity.generate(), await Identity.generate()];
  const { relay, client } = await start({}, { identity: self });
  const got = next<Letter>((f) => client.on('message', f));
  await client.connect();
  const conn = await relay.conn();
  const sealed = await encrypt(from, self.public, self.x25519.public, { type: 1, data: utf8('hello') });
  const frame = { flags: 1, sender: from.public, ...sealed };
  conn.send(Type.encryptedData, { ...frame, id: newID() });
  assert.equal((await got)[0]!.protection, 'encrypted');
  const first = await conn.frame(Type.ack);
  assert.ok(!isZero(first.payload.subarray(48)));
  const withheld = newID();
  conn.send(Type.encryptedData, { ...frame, id: withheld });
  const second = await conn.frame(Type.ack, 1);
  assert.deepEqual([hex(second.payload.subarray(32, 48)), isZero(second.payload.subarray(48))], [hex(withheld), true]);
});

test('a letter that cannot be looked at now is left with the relay', async () => {
  class Failing extends MemoryStorage {
    override readonly persistent: boolean = true;
    override list(prefix: string): Promise<[string, unknown][]> {
      return prefix.startsWith('card/') ? Promise.reject(new Error('disk failure')) : super.list(prefix);
    }
  }
  const { relay, client } = await start({}, { storage: new Failing() });
  const from = await Identity.generate();
  const errors: string[] = [];
  client.on('error', (e) => errors.push(e.message));
  const got = next<Letter>((f) => client.on('message', f));
  await client.connect();
  const conn = await relay.conn();
  const f = await letter(from, client.key, 'to a card');
  const payload = f.payload.slice();
  payload.fill(1, 33, 41); // its key id
  conn.send(f.type, { ...f, payload, signature: await from.sign(frameToSign(Type.sealed, f.id, payload)) });
  const plain = await letter(from, client.key, 'to the derived key');
  conn.send(plain.type, plain);
  assert.equal((await got)[0]!.text, 'to the derived key');
  assert.ok(errors.some((e) => /disk failure/.test(e)));
  const acks = await conn.frame(Type.ack);
  assert.equal(hex(acks.payload.subarray(32)), hex(concat(plain.id, acks.payload.subarray(48))));
  assert.equal(acks.payload.length, 112);
});

test('the same bytes are sent again, in order, until the relay has stored them', async () => {
  const { relay, client } = await start();
  await client.connect();
  const { key } = await Identity.generate();
  const sent = [client.send(key, 'one', { until: 'stored' }), client.send(key, 'two', { until: 'stored' })];
  const conn = await relay.conn();
  const [one, two] = [await conn.frame(Type.sealed, 0), await conn.frame(Type.sealed, 1)];
  conn.receipt(one.id, 1);
  conn.end();
  const again = await relay.conn(1);
  assert.deepEqual(await again.frame(Type.sealed, 0), one); // handed over is not for good
  assert.deepEqual(await again.frame(Type.sealed, 1), two);
  again.receipt(one.id, 2);
  again.end();
  const third = await relay.conn(2);
  assert.deepEqual(await third.frame(Type.sealed, 0), two);
  third.receipt(two.id, 2);
  assert.deepEqual((await Promise.all(sent)).map((r) => r.status), ['stored', 'stored']);
});

test('where the inbox is not durable, a message is kept until it was read', async () => {
  const { relay, client } = await start({ durable: false });
  await client.connect();
  const bob = await Identity.generate();
  const conn = await relay.conn();
  const stored = client.send(bob.key, 'x', { until: 'stored' });
  const f = await conn.frame(Type.sealed);
  conn.receipt(f.id, 2);
  await stored;
  conn.end();
  const again = await relay.conn(1);
  assert.deepEqual(await again.frame(Type.sealed), f);
  const read = next<Receipt>((l) => client.on('receipt', l));
  again.receipt(f.id, 3, bob.public, await bob.sign(ackToSign(f.sender, f.id)));
  assert.equal((await read)[0]!.status, 'read');
  again.end();
  const third = await relay.conn(2);
  await wait(30);
  assert.equal(third.got.filter((g) => g.type === Type.sealed).length, 0);
});

test('only the recipient acknowledges', async () => {
  const { relay, client } = await start();
  const errors = next<Error>((f) => client.on('error', f), 2);
  await client.connect();
  const [bob, eve] = [await Identity.generate(), await Identity.generate()];
  const conn = await relay.conn();
  const read = client.send(bob.key, 'x', { until: 'read' });
  const f = await conn.frame(Type.sealed);
  const signed = ackToSign(f.sender, f.id);
  conn.receipt(f.id, 3, eve.public, await eve.sign(signed));
  conn.receipt(f.id, 3, bob.public, await eve.sign(signed));
  assert.deepEqual((await errors).map((e) => (e as SottoError).code), ['bad-signature', 'bad-signature']);
  conn.receipt(f.id, 3, bob.public, await bob.sign(signed));
  assert.equal((await read).status, 'read');
});

test('refusals name what was refused, and the session goes on', async () => {
  const { relay, client } = await start();
  await client.connect();
  const conn = await relay.conn();
  const { key } = await Identity.generate();
  const refused = next<Receipt & { error: SottoError }>((f) => client.on('refused', f), 2);
  const sent = Promise.allSettled([client.send(key, 'a'), client.send(key, 'b')]);
  conn.receipt((await conn.frame(Type.sealed, 0)).id, 4, u16(10), utf8('full'));
  conn.error(7, 'too fast', (await conn.frame(Type.sealed, 1)).id);
  const why = (await sent).map((s) => (s.status === 'rejected' ? (s.reason as SottoError) : undefined));
  assert.deepEqual(why.map((e) => [e!.message, e!.byRelay]), [['inbox-full: full', true], ['rate-limited: too fast', true]]);
  assert.deepEqual((await refused).map((r) => r.error.code), ['inbox-full', 'rate-limited']);
  // And one that was stored can still expire.
  const c = client.send(key, 'c', { until: 'read' });
  const { id } = await conn.frame(Type.sealed, 2);
  conn.receipt(id, 2);
  conn.receipt(id, 5, u16(23));
  await assert.rejects(c, { code: 'expired', byRelay: true });
  assert.equal(relay.conns.length, 1);
});

test('an abort gives a message up', async () => {
  const { relay, client } = await start();
  await client.connect();
  const conn = await relay.conn();
  const { key } = await Identity.generate();
  const stop = new AbortController();
  const sent = client.send(key, 'x', { signal: stop.signal });
  await conn.frame(Type.sealed);
  stop.abort();
  await assert.rejects(sent, { name: 'AbortError' });
  conn.end();
  await wait(30);
  assert.equal((await relay.conn(1)).got.filter((f) => f.type === Type.sealed).length, 0);
});

test('a client does not come back where that does harm, and does elsewhere', async () => {
  for (const [code, final] of [[3, true], [4, true], [5, true], [17, true], [18, true], [7, false], [8, false], [19, false], [24, false]] as const) {
    const { relay, client } = await start();
    await client.connect();
    const conn = await relay.conn();
    const lost = next<{ error: SottoError; retryIn: number | undefined }>((f) => client.on('disconnected', f));
    conn.error(code, 'because');
    conn.end(1008);
    const [end] = await lost;
    assert.equal(end!.error.byRelay, true);
    assert.equal(end!.retryIn === undefined, final, String(code));
    if (final) await assert.rejects(client.send(client.key, 'x'), { code: end!.error.code });
    else await relay.conn(1);
  }
});

test('a relay that goes away is given its time, and names only relays that are configured', async () => {
  const { relay, client } = await start({}, { url: [{ url: 'ws://fake.example/' }, { url: 'ws://other.example/x' }], backoff: { min: 1, max: 40 } });
  await client.connect();
  const lost = next<{ error: SottoError; retryIn: number | undefined }>((f) => client.on('disconnected', f), 2);
  const conn = await relay.conn();
  conn.goAway(60_000, 'ws://evil.example/');
  conn.end(1001);
  const again = await relay.conn(1);
  assert.equal(client.server.url, 'ws://fake.example/');
  again.goAway(0, 'ws://other.example/x');
  again.end(1001);
  assert.deepEqual((await lost).map((e) => [e.error.code, e.retryIn === 40]), [['going-away', true], ['going-away', false]]);
  await relay.conn(2);
  assert.equal(client.server.url, 'ws://other.example/x');
});

test('relays that one tells of are listed, and not used', async () => {
  const { relay, client } = await start();
  const changed = next<{ url: string; discovered: boolean }[]>((f) => client.on('serversChanged', f));
  await client.connect();
  const address = utf8('wss://new.example/brep');
  const conn = await relay.conn();
  assert.equal((await conn.frame(Type.nodeInfo)).payload[0], 2);
  conn.send(Type.nodeInfo, { payload: concat(Uint8Array.of(4, address.length), address) });
  conn.send(Type.nodeInfo, { payload: concat(Uint8Array.of(4, 7), utf8('tcp://x')) });
  const [list] = await changed;
  assert.deepEqual(list!.map((s) => [s.url, s.discovered]), [[relay.url, false], ['wss://new.example/brep', true]]);
  assert.equal(client.server.url, relay.url);
});

test('what a relay says of the key of another one is not believed', async () => {
  const { relay, client } = await start();
  const changed = next<unknown>((f) => client.on('serversChanged', f));
  await client.connect();
  const address = utf8('ws://second.example/');
  const entry = concat((await Identity.generate()).public, Uint8Array.of(address.length), address);
  (await relay.conn()).send(Type.nodeInfo, { payload: concat(Uint8Array.of(3), u16(1), entry) });
  await changed;
  const moved = next<{ key?: string; firstContact: boolean }>((f) => client.on('connected', f));
  await client.selectServer('ws://second.example/');
  assert.deepEqual((await moved).map((c) => [c.key, c.firstContact]), [[hex(relay.identity.public), true]]);
});

test('publications are verified', async () => {
  const { relay, client } = await start({ onFrame: (f, conn) => {
    if (f.type === Type.request && /subscribe|join/.test(Buffer.from(f.payload).toString())) return conn.respond(f, { members: 1 }), true;
    return false;
  } });
  const errors: string[] = [];
  client.on('error', (e) => errors.push((e as SottoError).code));
  await client.connect();
  const got: string[] = [];
  await client.subscribe('t', (p) => got.push(p.text), { clear: true });
  await client.join('t', (p) => got.push('room ' + p.text), { clear: true });
  const conn = await relay.conn();
  const from = await Identity.generate();
  const publication = async (type: number, as: number, text: string): Promise<void> => {
    const [id, payload] = [newID(), encodePublication('t', utf8(text))];
    conn.send(type, { id, payload, sender: from.public, signature: await from.sign(frameToSign(as, id, payload)) });
  };
  await publication(Type.message, Type.publish, 'good');
  await publication(Type.message, Type.roomSend, 'from a room');
  await publication(Type.roomMessage, Type.roomSend, 'good');
  await publication(Type.roomMessage, Type.publish, 'from a topic');
  conn.send(Type.message, { payload: encodePublication('t', utf8('unsigned')), id: newID() });
  await until(() => errors.length === 3);
  assert.deepEqual(got, ['good', 'room good']);
  assert.deepEqual(errors, ['bad-signature', 'bad-signature', 'bad-signature']);
});

/** Returns a card of an identity. */
async function card(of: Identity, serial: bigint, from = Date.now(), to = from + 3_600_000): Promise<[Card, CardSecret]> {
  const secret = newCardSecret();
  return [await newCard(of, serial, from, to, secret), secret];
}

/** Returns the suite of the n-th message. */
async function suiteOf(relay: FakeRelay, n: number): Promise<number> {
  return (await (await relay.conn()).frame(Type.sealed, n)).payload[32]!;
}

test('a contact without a card gets suite 2, one with a card suite 3, which its keys open', async () => {
  const { relay, client } = await start();
  await client.connect();
  const [bob, carol] = [await Identity.generate(), await Identity.generate()];
  const [bobs, secret] = await card(bob, 7n);
  relay.cards.set(bob.key, bobs.encoded);
  void client.send(carol.key, 'no card').catch(() => undefined);
  assert.equal(await suiteOf(relay, 0), 2);
  void client.send(bob.key, 'card').catch(() => undefined);
  assert.equal(await suiteOf(relay, 1), 3);
  const f = await (await relay.conn()).frame(Type.sealed, 1);
  const content = await openSealed(bob.public, f.sender, f.id, f.signature, f.payload, await openKeysOf(bobs, secret));
  assert.equal(Buffer.from(content.data).toString(), 'card');
  // Our own card is there, and opens.
  const own = relay.cards.get(client.key);
  assert.ok(own && equal(own.subarray(1, 33), Uint8Array.from(Buffer.from(client.key, 'hex'))));
});

test('cards that are forged, swapped, expired, rolled back or withheld are noticed', async () => {
  const [bob, eve] = [await Identity.generate(), await Identity.generate()];
  const now = Date.now();
  const forged = (await card(bob, 9n))[0].encoded.slice();
  forged[200]! ^= 1;
  const bad: [string, Bytes][] = [
    ['forged', forged],
    ['swapped', (await card(eve, 9n))[0].encoded],
    ['expired', (await card(bob, 9n, now - 2_000_000, now - 1_000))[0].encoded],
    ['too early', (await card(bob, 9n, now + 2_000_000))[0].encoded],
    ['no card', utf8('x')],
  ];
  for (const [what, encoded] of bad) {
    const { relay, client } = await start();
    relay.cards.set(bob.key, encoded);
    await client.connect();
    await assert.rejects(client.send(bob.key, 'x'), { code: 'card' }, what);
  }

  // One that was seen: a lower serial, another one with the same, or none, are errors.
  for (const [what, then] of [
    ['rolled back', (await card(bob, 6n))[0].encoded], ['another one', (await card(bob, 7n))[0].encoded], ['withheld', undefined],
  ] as const) {
    const storage = new MemoryStorage();
    const { relay, client } = await start({}, { storage });
    const [short] = await card(bob, 7n, now - 1000, now + 120_000);
    relay.cards.set(bob.key, short.encoded);
    await client.connect();
    void client.send(bob.key, 'x').catch(() => undefined);
    assert.equal(await suiteOf(relay, 0), 3);
    if (then === undefined) relay.cards.delete(bob.key);
    else relay.cards.set(bob.key, then);
    mock.timers.enable({ apis: ['Date'], now: now + 121_000 }); // the card ends
    await assert.rejects(client.send(bob.key, 'x'), { code: 'card' }, what);
    await client.forgetCard(bob.key);
    void client.send(bob.key, 'x').catch(() => undefined);
    assert.equal(await suiteOf(relay, 1), then === undefined ? 2 : 3);
    mock.timers.reset();
  }
});

test('a promised card is wanted', async () => {
  const bob = await Identity.generate();
  const { relay, client } = await start();
  await client.connect();
  await client.promiseCard(bob.key, 5n);
  await assert.rejects(client.send(bob.key, 'x'), { code: 'card' });
  relay.cards.set(bob.key, (await card(bob, 4n))[0].encoded);
  await assert.rejects(client.send(bob.key, 'x'), { code: 'card' });
  relay.cards.set(bob.key, (await card(bob, 5n))[0].encoded);
  void client.send(bob.key, 'x').catch(() => undefined);
  assert.equal(await suiteOf(relay, 0), 3);
});

test('the serial of our card is that of the one the relay has', async () => {
  const { relay, client } = await start();
  const before = await client.cardSerial();
  await client.connect();
  await until(() => relay.cards.has(client.key));
  assert.equal((await decodeCard(relay.cards.get(client.key)!)).serial, before);
  assert.equal(await client.cardSerial(), before);
});

test('weak recipients are refused', async () => {
  const { client } = await start();
  await assert.rejects(client.send('01' + '00'.repeat(31), 'x'), { code: 'weak-key' });
  await assert.rejects(client.send('xyz', 'x'), { code: 'malformed' });
  await assert.rejects(client.send((await Identity.generate()).key, new Uint8Array((4 << 20) + 1)), { code: 'too-large' });
});
