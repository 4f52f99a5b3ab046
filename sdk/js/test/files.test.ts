import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { after, before, mock, test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import { hex, random, utf8 } from '../src/bytes.js';
import { decodeControl, decodePart, encodeControl, encodePart, type FilePart, Layout, maxPart } from '../src/crypto/filepart.js';
import { FileReceiver } from '../src/filereceive.js';
import { FileSender } from '../src/filesend.js';
import { type FileProgress, Identity } from '../src/index.js';
import { closeClients, freePort, idleClient, newClient, type Relay, scratch, startRelay } from './relay.js';
import { bytes } from './vectors.js';

let relay: Relay;

before(async () => {
  relay = await startRelay(['--data', scratch()]);
});

after(async () => {
  await closeClients();
  await relay.stop();
});

const transfer = bytes('0b'.repeat(16));
const sha256 = (b: Uint8Array) => createHash('sha256').update(b).digest('hex');

test('parts and controls', () => {
  const header = { name: 'a.txt', size: 5, sha256: '0a'.repeat(32) };
  for (const p of [
    { transfer, index: 0, last: true, header, data: utf8('hello') },
    { transfer, index: 7, last: false, data: new Uint8Array(maxPart) },
    { transfer, index: 0xffffffff, last: true, data: new Uint8Array(0) },
  ]) {
    assert.deepEqual(decodePart(encodePart(p).data), p);
  }
  const raw = (h: string) => encodePart({ transfer, index: 0, last: true, data: utf8('\0' + String.fromCharCode(h.length) + h) }).data;
  for (const bad of [
    bytes(''), bytes('00'.repeat(20)), bytes('00'.repeat(21)), bytes('00'.repeat(20) + '02'), bytes('00'.repeat(20) + '010005'),
    encodePart({ transfer, index: 1, last: false, data: new Uint8Array(maxPart + 1) }).data,
    raw('null'), raw('[]'), raw('{"name":"a","size":1}'), raw(`{"name":"a/b","size":1,"sha256":"${header.sha256}"}`),
    raw(`{"name":"a","size":-1,"sha256":"${header.sha256}"}`), raw(`{"name":"a","size":1.5,"sha256":"${header.sha256}"}`),
    raw(`{"name":"a","size":"1","sha256":"${header.sha256}"}`), raw('{"name":"a","size":1,"sha256":"00"}'),
  ]) {
    assert.throws(() => decodePart(bad), { code: 'malformed' }, hex(bad));
  }
  for (const c of [{ transfer, op: 'accept' }, { transfer, op: 'have', have: 9 }, { transfer, op: 'cancel' }] as const) {
    assert.deepEqual(decodeControl(encodeControl(c).data), c);
  }
  for (const bad of ['', '00'.repeat(16), '00'.repeat(17), '00'.repeat(16) + '0100', '00'.repeat(16) + '02', '00'.repeat(16) + '04']) {
    assert.throws(() => decodeControl(bytes(bad)), { code: 'malformed' }, bad);
  }
});

test('the layout of a file', () => {
  for (const [size, first, parts] of [
    [0, 0, 1], [5, 5, 1], [maxPart, maxPart, 1], [maxPart + 1, 1, 2], [maxPart + 2, 1, 3], [3 * maxPart, 0, 4],
  ] as const) {
    const l = new Layout(size, first);
    assert.equal(l.parts, parts);
    assert.equal(l.offset(l.parts), size);
  }
});

/** A receiver and a sender, with a wire between that can lose parts. */
function wire(accept: () => boolean | WritableStream<Uint8Array>, lose: (index: number) => boolean = () => false) {
  const steps: FileProgress[] = [];
  const queue: Promise<void>[] = [];
  const receiver: FileReceiver = new FileReceiver(
    async (_, c) => sender.hear('bob', decodeControl(c.data)), accept, (p) => steps.push(p),
  );
  let turn = Promise.resolve();
  const sender: FileSender = new FileSender(async (_, c) => {
    if (c.type === 5) return receiver.cancelled(alice, decodeControl(c.data).transfer);
    const p = decodePart(c.data);
    if (!lose(p.index)) queue.push((turn = turn.then(() => receiver.part(alice, p))));
  });
  return { receiver, sender, steps, settled: () => Promise.all(queue) };
}
const alice = 'a'.repeat(64);

test('files of all kinds of sizes arrive whole', async () => {
  for (const size of [0, 1, 16 << 10, (16 << 10) + 1, (16 << 10) + maxPart, 5_000_000]) {
    const { sender, steps } = wire(() => true);
    const data = randomBytes(size);
    const done: number[] = [];
    await sender.sendFile('bob', new Blob([data]), { name: 'x', onProgress: (n) => done.push(n) });
    const last = steps.at(-1)!;
    assert.equal(last.whole, true);
    assert.equal(sha256(new Uint8Array(await last.blob!.arrayBuffer())), sha256(data));
    assert.equal(done.at(-1), size);
    assert.deepEqual(done, [...done].sort((a, b) => a - b));
  }
});

test('what was lost on the way is sent again', async () => {
  const lost = new Set([2, 3, 9]);
  const { sender, steps } = wire(() => true, (i) => lost.delete(i));
  const data = randomBytes(4_000_000);
  await sender.sendFile('bob', new Blob([data]), { name: 'x' });
  assert.equal(sha256(new Uint8Array(await steps.at(-1)!.blob!.arrayBuffer())), sha256(data));
  assert.equal(lost.size, 0);
});

test('a stream gets the file in pieces, and is aborted when it is not as announced', async () => {
  const pieces: Uint8Array[] = [];
  let end = '';
  const stream = () => new WritableStream<Uint8Array>({
    write: (b) => void pieces.push(b), close: () => void (end = 'closed'), abort: () => void (end = 'aborted'),
  });
  const { sender } = wire(stream);
  const data = randomBytes(700_000);
  await sender.sendFile('bob', new Blob([data]), { name: 'x' });
  assert.equal(sha256(Buffer.concat(pieces)), sha256(data));
  assert.equal(end, 'closed');

  const said: string[] = [];
  const receiver = new FileReceiver(async (_, c) => said.push(decodeControl(c.data).op), stream, () => undefined);
  await receiver.part(alice, { transfer, index: 0, last: true, header: { name: 'x', size: 1, sha256: '00'.repeat(32) }, data: utf8('x') });
  assert.equal(end, 'aborted');
  assert.deepEqual(said, ['accept', 'cancel']);
});

test('lies about a file end it', async () => {
  const header = { name: 'x', size: maxPart + 10, sha256: '00'.repeat(32) };
  const good: FilePart = { transfer, index: 0, last: false, header, data: new Uint8Array(10) };
  const lies: Partial<FilePart>[] = [
    { index: 1, last: false, data: new Uint8Array(maxPart) }, // and not the last
    { index: 1, last: true, data: new Uint8Array(5) }, // too short
    { index: 2, last: true, data: new Uint8Array(1) }, // beyond the end
    { header: { ...header, size: 20 }, data: new Uint8Array(10) }, // another file
  ];
  for (const lie of lies) {
    const said: string[] = [];
    const steps: FileProgress[] = [];
    const receiver = new FileReceiver(async (_, c) => said.push(decodeControl(c.data).op), () => true, (p) => steps.push(p));
    await receiver.part(alice, good);
    const { header: __, ...rest } = good;
    await receiver.part(alice, { ...rest, ...lie } as FilePart);
    assert.equal(said.at(-1), 'cancel', JSON.stringify(said));
    assert.equal(steps.at(-1)!.error?.code, 'malformed');
  }
});

test('offers are refused without being asked for, and beyond a number', async () => {
  const said: string[] = [];
  let asked = 0;
  const never = new Promise<boolean>(() => undefined);
  const receiver = new FileReceiver(async (_, c) => said.push(decodeControl(c.data).op), () => (asked++, never), () => undefined);
  const header = { name: 'x', size: 1, sha256: '00'.repeat(32) };
  for (let i = 0; i < 6; i++) void receiver.part(alice, { transfer: random(16), index: 0, last: true, header, data: utf8('x') });
  await wait(50);
  assert.equal(asked, 4);
  assert.deepEqual(said, ['cancel', 'cancel']);
  void receiver.part('b'.repeat(64), { transfer: random(16), index: 0, last: true, header, data: utf8('') });
  await wait(20);
  assert.deepEqual(said, ['cancel', 'cancel', 'cancel']); // its first part does not fit
});

test('a transfer without progress for a day makes room', async () => {
  mock.timers.enable({ apis: ['Date'], now: 1_000_000 });
  const steps: FileProgress[] = [];
  const said: string[] = [];
  const receiver = new FileReceiver(async (_, c) => said.push(decodeControl(c.data).op), () => true, (p) => steps.push(p));
  const header = { name: 'x', size: maxPart + 1, sha256: '00'.repeat(32) };
  const offer = () => receiver.part(alice, { transfer: random(16), index: 0, last: false, header, data: utf8('x') });
  for (let i = 0; i < 4; i++) await offer();
  mock.timers.setTime(1_000_000 + 24 * 3600 * 1000 - 1);
  await offer();
  assert.equal(said.at(-1), 'cancel');
  mock.timers.setTime(1_000_000 + 24 * 3600 * 1000);
  await offer();
  mock.timers.reset();
  assert.equal(steps.filter((p) => p.error?.code === 'timeout').length, 4);
  assert.equal(steps.at(-1)!.error, undefined);
});

test('a file goes through the relay, sealed, while the receiver talks on', async () => {
  const bob = await newClient(relay, { acceptFile: async (o) => (await wait(50), o.name === 'big.bin') });
  const sender = await newClient(relay);
  const texts: string[] = [];
  bob.on('message', (l) => texts.push(l.text));
  const data = randomBytes(3_000_000);
  const whole = new Promise<FileProgress>((resolve) => bob.on('file', (p) => p.whole && resolve(p)));
  const sent = sender.sendFile(bob.key, new Blob([data]), { name: 'big.bin' });
  await sender.send(bob.key, 'meanwhile', { until: 'read' });
  await sent;
  const file = await whole;
  assert.equal(file.from, sender.key);
  assert.equal(sha256(new Uint8Array(await file.blob!.arrayBuffer())), sha256(data));
  assert.deepEqual(texts, ['meanwhile']);
  await assert.rejects(sender.sendFile(bob.key, new Blob(['x']), { name: 'small' }), { code: 'cancelled' });
  await assert.rejects(sender.sendFile(bob.key, new Blob(['x']), { name: '../x' }), { code: 'malformed' });
});

test('a file waits for a receiver who is away, and an abort tells him', async () => {
  const sender = await newClient(relay);
  const identity = await Identity.generate();
  const stop = new AbortController();
  const sent = sender.sendFile(identity.key, new Blob([randomBytes(100_000)]), { name: 'x', signal: stop.signal });
  const bob = idleClient(relay, { identity, acceptFile: () => true });
  const first = new Promise<FileProgress>((resolve) => bob.on('file', resolve));
  await wait(100);
  await bob.connect();
  assert.equal((await first).name, 'x');
  await sent;

  const other = sender.sendFile(identity.key, new Blob([randomBytes(100_000)]), { name: 'refused', signal: stop.signal });
  stop.abort();
  await assert.rejects(other, { name: 'AbortError' });
});

test('a file goes on after the relay was away', async () => {
  const data = scratch();
  const port = await freePort();
  let other = await startRelay(['--data', data], port);
  const [sender, bob] = [await newClient(other), await newClient(other, { acceptFile: () => true })];
  const file = randomBytes(12_000_000);
  const whole = new Promise<FileProgress>((resolve) => bob.on('file', (p) => p.whole && resolve(p)));
  let cut = Promise.resolve();
  await sender.sendFile(bob.key, new Blob([file]), {
    name: 'x',
    onProgress: (done) => {
      if (done < 2_000_000 || done > 2_600_000) return;
      cut = cut.then(() => other.stop('SIGKILL')).then(async () => void (other = await startRelay(['--data', data], port)));
    },
  });
  assert.equal(sha256(new Uint8Array(await (await whole).blob!.arrayBuffer())), sha256(file));
  await cut;
  await Promise.all([sender.close(), bob.close()]);
  await other.stop();
});
