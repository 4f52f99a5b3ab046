import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { type FileProgress, Identity, type Letter, MemoryStorage, type Publication, type Receipt } from '../src/index.js';
import { closeClients, GoClient, idleClient, newClient, next, type Relay, scratch, startRelay, until } from './relay.js';

let relay: Relay;

before(async () => {
  relay = await startRelay(['--data', scratch()]);
});

after(async () => {
  await closeClients();
  await relay.stop();
});

test('two clients exchange text, JSON, bytes and a file, sealed, and hear that they were read', async () => {
  const [alice, bob] = [await newClient(relay), await newClient(relay)];
  const letters = next<Letter>((f) => bob.on('message', f), 4);
  const receipts = [
    await alice.send(bob.key, 'héllo', { until: 'read' }),
    await alice.send(bob.key, { json: { n: [1, 2] } }),
    await alice.send(bob.key, Uint8Array.of(1, 2, 3)),
    await alice.send(bob.key, { name: 'a.txt', bytes: Uint8Array.of(9) }),
  ];
  assert.equal(receipts[0]!.status, 'read');
  assert.equal(receipts[0]!.to, bob.key);
  const got = await letters;
  assert.deepEqual(got.map((l) => [l.type, l.from, l.protection]), ['text', 'json', 'raw', 'file'].map((t) => [t, alice.key, 'sealed']));
  assert.equal(got[0]!.text, 'héllo');
  assert.equal(got[0]!.id, receipts[0]!.id);
  assert.deepEqual(got[1]!.json(), { n: [1, 2] });
  assert.deepEqual(got[2]!.bytes, Uint8Array.of(1, 2, 3));
  assert.equal(got[3]!.name, 'a.txt');
});

test('signed and clear messages say that they are', async () => {
  const [alice, bob] = [await newClient(relay), await newClient(relay)];
  const letters = next<Letter>((f) => bob.on('message', f), 2);
  await alice.send(bob.key, 'for all to see', { protection: 'signed' });
  await alice.send(bob.key, 'whoever says so', { protection: 'clear' });
  assert.deepEqual((await letters).map((l) => [l.protection, l.type, l.text]), [
    ['signed', 'text', 'for all to see'], ['clear', 'raw', 'whoever says so'],
  ]);
  await assert.rejects(alice.send(bob.key, { name: 'x', bytes: Uint8Array.of() }, { protection: 'clear' }), { code: 'malformed' });
});

test('a message for somebody who is away is stored, and comes with the next login', async () => {
  const alice = await newClient(relay);
  const identity = await Identity.generate();
  const { status } = await alice.send(identity.key, 'later');
  assert.equal(status, 'stored');
  const bob = idleClient(relay, { identity });
  const letters = next<Letter>((f) => bob.on('message', f));
  const read = next<Receipt>((f) => alice.on('receipt', f));
  await bob.connect();
  assert.equal((await letters)[0]!.text, 'later');
  assert.equal((await read)[0]!.status, 'read');
});

test('an ephemeral message for somebody who is away is refused', async () => {
  const alice = await newClient(relay);
  const { key } = await Identity.generate();
  await assert.rejects(alice.send(key, 'now', { ephemeral: true }), { code: 'not-here', byRelay: true });
});

test('the Go client reads what we send, and we read what it sends', async () => {
  const go = new GoClient(relay);
  const goKey = await go.key();
  const alice = await newClient(relay);
  await alice.send(goKey, 'from a browser');
  await alice.send(goKey, { name: 'b.bin', bytes: Uint8Array.of(1, 2, 3) });
  await alice.send(goKey, 'signed too', { protection: 'signed' });
  const shown = await go.receive(3, '--json', '--dir', go.path('files'));
  const lines = shown.trim().split('\n').map((line) => JSON.parse(line) as Record<string, string>);
  assert.equal(lines.length, 3);
  assert.match(shown, /from a browser/);
  assert.match(shown, /signed too/);
  assert.ok(shown.includes(alice.key));
  assert.deepEqual([...readFileSync(go.path('files/b.bin'))], [1, 2, 3]);

  const letters = next<Letter>((f) => alice.on('message', f), 3);
  await go.run('send', '-m', 'from Go', alice.key);
  await go.run('send', '--signed', '-m', 'signed by Go', alice.key);
  writeFileSync(go.path('note.txt'), 'in a file');
  await go.run('send', alice.key, go.path('note.txt'));
  assert.deepEqual((await letters).map((l) => [l.from, l.protection, l.text, l.name]), [
    [goKey, 'sealed', 'from Go', undefined],
    [goKey, 'signed', 'signed by Go', undefined],
    [goKey, 'sealed', 'in a file', 'note.txt'],
  ]);
});

test('large files go to the Go client and come from it', async () => {
  const go = new GoClient(relay);
  const goKey = await go.key();
  const alice = await newClient(relay, { acceptFile: () => true });
  const file = randomBytes(5_000_000); // which is more than a message may have
  const receiving = go.start('recv', '--follow', '--dir', go.path('files'));
  await alice.sendFile(goKey, new Blob([file]), { name: 'from-a-browser.bin' });
  receiving.child.kill('SIGINT');
  await receiving;
  assert.ok(file.equals(readFileSync(go.path('files/from-a-browser.bin'))));

  writeFileSync(go.path('from-go.bin'), file);
  const whole = new Promise<FileProgress>((resolve) => alice.on('file', (p) => p.whole && resolve(p)));
  await go.run('send', alice.key, go.path('from-go.bin'));
  const { from, name, blob } = await whole;
  assert.deepEqual([from, name], [goKey, 'from-go.bin']);
  assert.ok(file.equals(new Uint8Array(await blob!.arrayBuffer())));
});

test('the Go client is heard in topics and rooms, and hears', async () => {
  const go = new GoClient(relay);
  const goKey = await go.key();
  const alice = await newClient(relay);
  const heard: string[] = [];
  const hear = (p: Publication) => void heard.push(`${p.name}: ${p.text} by ${p.from}`);
  await alice.publish('news/browser', 'from a browser', { clear: true, retain: true });
  assert.match(await go.run('sub', '--count', '1', 'news/#'), /from a browser/);
  await alice.subscribe('news/+', hear, { clear: true });
  await until(() => heard.length === 1);
  await go.run('pub', 'news/go', 'from Go');
  await until(() => heard.length === 2);
  assert.equal(heard[1], `news/go: from Go by ${goKey}`);

  const room = await alice.join('with Go', hear, { clear: true });
  const chat = go.start('chat', 'with Go');
  chat.child.stdin!.write('hello browser\n');
  await until(() => heard.length === 3);
  assert.equal(heard[2], `with Go: hello browser by ${goKey}`);
  let shown = '';
  chat.child.stdout!.on('data', (s: string) => (shown += s));
  await room.send('hello Go');
  await until(() => shown.includes('hello Go'));
  chat.child.stdin!.end('/quit\n');
  await chat;
});

test('an identity moves to the Go client', async () => {
  const identity = await Identity.generate({ extractable: true });
  const alice = await newClient(relay);
  const go = new GoClient(relay);
  go.useIdentity(await identity.export());
  assert.equal(await go.key(), identity.key);
  await alice.send(identity.key, 'wherever you are');
  assert.match(await go.receive(1), /wherever you are/);
});

test('messages sent while there is no connection go out, in order, once there is', async () => {
  const bob = await newClient(relay);
  const letters = next<Letter>((f) => bob.on('message', f), 20);
  const alice = idleClient(relay, { identity: await Identity.generate() });
  const sent = Array.from({ length: 20 }, (_, i) => alice.send(bob.key, String(i)));
  await alice.connect();
  await Promise.all(sent);
  assert.deepEqual((await letters).map((l) => l.text), Array.from({ length: 20 }, (_, i) => String(i)));
});

test('a message whose listener throws comes again after the next login', async () => {
  const [alice, identity] = [await newClient(relay), await Identity.generate()];
  await alice.send(identity.key, 'difficult');
  const storage = new MemoryStorage();
  const first = idleClient(relay, { identity, storage });
  const errors = next<Error>((f) => first.on('error', f));
  first.on('message', () => {
    throw new Error('not now');
  });
  await first.connect();
  assert.match((await errors)[0]!.message, /not now/);
  await first.close();
  const second = idleClient(relay, { identity, storage });
  const letters = next<Letter>((f) => second.on('message', f));
  await second.connect();
  assert.equal((await letters)[0]!.text, 'difficult');
});

test('a newer login of the same key ends the client', async () => {
  const identity = await Identity.generate();
  const first = await newClient(relay, { identity });
  const ended = next<{ error: Error; retryIn: number | undefined }>((f) => first.on('disconnected', f));
  await newClient(relay, { identity });
  const [end] = await ended;
  assert.equal((end!.error as unknown as { code: string }).code, 'replaced');
  assert.equal(end!.retryIn, undefined);
  await assert.rejects(first.send(identity.key, 'x'), { code: 'replaced' });
});

test('a relay with another key than the pinned one is refused', async () => {
  const { key } = await Identity.generate();
  await assert.rejects(newClient(relay, { relay: key }), { code: 'key-mismatch' });
  const c = await newClient(relay, { relay: relay.key });
  assert.equal(c.connected, true);
});
