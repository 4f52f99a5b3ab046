// What strangers, relays and broken storages do to a client's inbox.

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { type Bytes, hex, random, utf8 } from '../src/bytes.js';
import { decodeCard, sealKeyOf } from '../src/crypto/card.js';
import { type Content, ContentType } from '../src/crypto/content.js';
import { encodePart } from '../src/crypto/filepart.js';
import { newID } from '../src/crypto/identity.js';
import { derivedSealKey, seal, type SealKey } from '../src/crypto/seal.js';
import { Client, type ClientOptions, Identity, MemoryStorage } from '../src/index.js';
import { type Frame, newFrame, Type } from '../src/wire/frame.js';
import { type Behaviour, type FakeConn, FakeRelay } from './fakerelay.js';
import { until } from './relay.js';

const clients: Client[] = [];

afterEach(async () => {
  await Promise.all(clients.splice(0).map((c) => c.close()));
});

async function start(behave: Behaviour = {}, options: Partial<ClientOptions> = {}) {
  const relay = await FakeRelay.start(behave);
  const client = await relay.client(options);
  clients.push(client);
  const said: string[] = [];
  client.on('error', (e) => said.push(e.message));
  return { relay, client, said };
}

async function letter(from: Identity, to: SealKey, content: Content): Promise<Frame> {
  const id = newID();
  return newFrame(Type.sealed, { flags: 1, id, sender: from.public, ...(await seal(from, to, id, content)) });
}

const text = (s: string): Content => ({ type: ContentType.text, data: utf8(s) });

/** Returns the ids in hex that were acknowledged. */
function acked(conn: FakeConn): string[] {
  return conn.got.filter((f) => f.type === Type.ack).flatMap((f) =>
    Array.from({ length: f.payload.length / 112 }, (_, i) => hex(f.payload.subarray(i * 112 + 32, i * 112 + 48))));
}

test('JSON that is none reaches no listener, and is acknowledged', async () => {
  const { relay, client, said } = await start();
  let heard = 0;
  client.on('message', (m) => (heard++, m.json()));
  await client.connect();
  const conn = await relay.conn();
  const from = await Identity.generate();
  const to = derivedSealKey(Uint8Array.from(Buffer.from(client.key, 'hex')));
  for (const bad of ['', '{', '{"a":1}x', '\ufeff1']) {
    const f = await letter(from, to, { type: ContentType.json, data: utf8(bad) });
    conn.send(f.type, f);
    await until(() => acked(conn).includes(hex(f.id)));
  }
  const good = await letter(from, to, { type: ContentType.json, data: utf8('{"a":1}') });
  conn.send(good.type, good);
  await until(() => acked(conn).includes(hex(good.id)));
  assert.equal(heard, 1);
  assert.deepEqual(said, Array(4).fill('malformed: JSON that is none'));
});

test('an offer that waits for a person does not keep parts of the file from being acknowledged', async () => {
  let decide!: (accept: boolean) => void;
  let offers = 0;
  const { relay, client } = await start({}, {
    acceptFile: () => (offers++, new Promise<boolean>((resolve) => (decide = resolve))),
  });
  let blob: Blob | undefined;
  client.on('file', (p) => (blob = p.blob));
  await client.connect();
  const conn = await relay.conn();
  const from = await Identity.generate();
  const to = derivedSealKey(Uint8Array.from(Buffer.from(client.key, 'hex')));
  const transfer = random(16);
  const data = random(30);
  const sha256 = hex(new Uint8Array(await crypto.subtle.digest('SHA-256', data)));
  const part = async (index: number) => {
    const f = await letter(from, to, encodePart({
      transfer, index, last: index === 1, data: data.subarray(...(index === 0 ? [0, 10] : [10, 30])),
      ...(index === 0 && { header: { name: 'a', size: 30, sha256 } }),
    }));
    conn.send(f.type, f);
    return hex(f.id);
  };
  const offer = await part(0);
  await until(() => offers === 1);
  const early = [await part(1), await part(0), await part(1)];
  await until(() => early.every((id) => acked(conn).includes(id)));
  assert.ok(!acked(conn).includes(offer));
  decide(true);
  await until(() => acked(conn).includes(offer));
  await part(1);
  await until(() => blob !== undefined);
  assert.deepEqual(new Uint8Array(await blob!.arrayBuffer()), data);
  assert.equal(offers, 1);
});

test('what a relay hands over without an id, or beyond the window, is bounded', async () => {
  const { relay, client } = await start();
  let go!: () => void;
  const gate = new Promise<void>((resolve) => (go = resolve));
  let heard = 0;
  client.on('message', () => (heard++, gate));
  await client.connect();
  const conn = await relay.conn();
  const { public: sender } = await Identity.generate();
  const to = Uint8Array.from(Buffer.from(client.key, 'hex')) as Bytes;
  for (let i = 0; i < 600; i++) conn.send(Type.data, { sender, payload: to });
  await conn.seen();
  go();
  await until(() => heard >= 512);
  await conn.seen();
  assert.equal(heard, 512);
  for (let i = 0; i < 3; i++) conn.send(Type.data, { sender, payload: to });
  await until(() => heard === 515); // there is room again
});

test('a damaged card takes no other with it', async () => {
  class Lasting extends MemoryStorage {
    override readonly persistent: boolean = true;
  }
  const storage = new Lasting();
  const identity = await Identity.generate();
  const { relay, client } = await start({}, { storage, identity });
  await client.connect();
  await until(() => relay.cards.has(client.key));
  const card = await decodeCard(relay.cards.get(client.key)!);
  await client.close();
  const [[name, kept]] = (await storage.list(`card/${client.key}/`)) as [[string, { card: Bytes; secret: Bytes }]];
  await storage.set(name.replace(/\d+$/, '0'.repeat(20)), { ...kept, card: kept.card.map((b, i) => (i === 100 ? b ^ 1 : b)) });
  const again = await relay.client({ storage, identity });
  clients.push(again);
  const said: string[] = [];
  const heard: string[] = [];
  again.on('error', (e) => said.push(e.message));
  again.on('message', (m) => heard.push(m.text));
  await again.connect();
  const f = await letter(await Identity.generate(), sealKeyOf(card, 3), text('hello'));
  (await relay.conn(1)).send(f.type, f);
  await until(() => heard.length === 1);
  assert.deepEqual(said, ['bad-signature: the signature does not hold']);
});

test('a match is with a key', async () => {
  const peer = (await Identity.generate()).key;
  const answers = ['<b>', peer];
  const { client } = await start({
    onFrame(f, conn) {
      if (f.type !== Type.request || !/find_match/.test(Buffer.from(f.payload).toString())) return;
      conn.respond(f, { t: 'matched', game: 'g', peer: answers.shift() });
      return true;
    },
  });
  await client.connect();
  await assert.rejects(client.findMatch('g'), { code: 'malformed' });
  assert.equal(await client.findMatch('g'), peer);
});

test('a room has a number of members', async () => {
  const answers: unknown[] = ['many', 0, 3, null];
  const { relay, client } = await start({
    onFrame(f, conn) {
      if (f.type !== Type.request || !/join_room/.test(Buffer.from(f.payload).toString())) return;
      conn.respond(f, { members: answers.shift() });
      return true;
    },
  });
  await client.connect();
  const join = () => client.join('r', () => {}, { clear: true });
  await assert.rejects(join(), { code: 'malformed' });
  await assert.rejects(join(), { code: 'malformed' });
  const room = await join();
  assert.equal(room.members, 3);
  relay.conns[0]!.end();
  await (await relay.conn(1)).request('join_room');
  await relay.conns[1]!.seen();
  assert.deepEqual(answers, []);
  assert.equal(room.members, 3);
});

test('what is damaged in a storage keeps a client from neither connecting nor sending what is not', async () => {
  const storage = new MemoryStorage();
  const identity = await Identity.generate();
  const friend = await Identity.generate();
  const before = await (await FakeRelay.start()).client({ storage, identity });
  await before.send(friend.key, utf8('kept'), { protection: 'clear', until: 'queued' });
  await before.close();
  await storage.set(`outbox/${identity.key}/000000000007`, { frame: random(40), made: Date.now() });
  await storage.set(`group/${identity.key}/${friend.key}/00`, 'damaged');
  const { relay, client, said } = await start({}, { storage, identity });
  await client.connect();
  const f = await (await relay.conn()).frame(Type.data);
  assert.equal(Buffer.from(f.payload.subarray(32)).toString(), 'kept');
  assert.equal(said.length, 2);
});
