import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { fromBase64 } from '../src/bytes.js';
import { Identity, MemoryStorage } from '../src/index.js';
import { addressOfKey, JsonClient, type JsonClientOptions, type JsonMessage, type JsonPublication } from '../src/json/index.js';
import { freePort, next, type Relay, scratch, startRelay, until, WebSocket } from './relay.js';
import { cases, root } from './vectors.js';

let relay: Relay;
let tcp: string;
const clients: JsonClient[] = [];

before(async () => {
  relay = await startRelay(['--data', scratch(), '--listen', 'tcp://127.0.0.1:0?dialect=json']);
  tcp = relay.urls[1]!;
});

after(async () => {
  await Promise.all(clients.map((c) => c.close()));
  await relay.stop();
});

async function newClient(options: Partial<JsonClientOptions> = {}, to = relay): Promise<JsonClient> {
  const c = new JsonClient({
    url: to.url + '/json', identity: await Identity.generate(), WebSocket, backoff: { min: 20, max: 200 }, ...options,
  });
  clients.push(c);
  await c.connect();
  return c;
}

test('addresses of keys are those of self_certifying.json', async () => {
  for (const c of cases('crypto/testdata/self_certifying.json')) {
    assert.equal(await addressOfKey(fromBase64(c.pubkey_base64)!), c.address);
  }
});

test('two who know no keys of one another exchange messages, in both boxes', async () => {
  const [alice, bob] = [await newClient(), await newClient({ address: 'bob', cipher: 'xchacha20' })];
  assert.equal(alice.address, await addressOfKey(fromBase64(alice.key)!));
  assert.equal(bob.address, 'bob');
  const toBob = next<JsonMessage>((f) => bob.on('message', f));
  const peer = next<{ address: string; key: string }>((f) => alice.on('peer', f));
  await alice.send('bob', 'hello', { acked: true });
  const [m] = await toBob;
  assert.deepEqual([m!.from, m!.text], [alice.address, 'hello']);
  assert.deepEqual(await peer, [{ address: 'bob', key: bob.key }]);
  const toAlice = next<JsonMessage>((f) => alice.on('message', f));
  await bob.send(alice.address!, 'and back');
  assert.equal((await toAlice)[0]!.text, 'and back');
  await assert.rejects(bob.send(alice.address!, new Uint8Array(60_000)), { code: 'too-large' });
});

test('a message for somebody who is away is queued, and comes later', async () => {
  const [alice, storage, identity] = [await newClient(), new MemoryStorage(), await Identity.generate()];
  const bob = await newClient({ identity, storage });
  const came = next<JsonMessage>((f) => bob.on('message', f));
  await alice.send(bob.address!, 'first');
  await came;
  await bob.close();
  const queued = next<{ to: string }>((f) => alice.on('queued', f));
  await alice.send(bob.address!, 'second', { id: 'm2' });
  assert.deepEqual(await queued, [{ to: bob.address, id: 'm2' }]);
  const again = new JsonClient({ url: relay.url + '/json', identity, storage, WebSocket });
  clients.push(again);
  const late = next<JsonMessage>((f) => again.on('message', f));
  const ack = next<{ from: string; id: string }>((f) => alice.on('ack', f));
  await again.connect();
  assert.deepEqual((await late).map((m) => [m.text, m.id]), [['second', 'm2']]);
  assert.deepEqual(await ack, [{ from: bob.address, id: 'm2' }]);
});

test('another key than the pinned one is not taken', async () => {
  const alice = await newClient();
  const bob = await newClient({ address: 'robert' });
  await alice.send('robert', 'x', { acked: true });
  await bob.close();
  // The relay binds the alias; another relay, or a lying one, would not.
  const other = await startRelay();
  const storage = new MemoryStorage();
  const identity = await Identity.generate();
  await storage.set(`json/${identity.key}/robert`, fromBase64(bob.key));
  const alice2 = await newClient({ identity, storage }, other);
  const errors = next<Error & { code?: string }>((f) => alice2.on('error', f));
  const false_ = await newClient({ address: 'robert' }, other);
  await false_.announce(alice2.address!);
  assert.equal((await errors)[0]!.code, 'key-mismatch');
  await Promise.all([alice2.close(), false_.close()]);
  await other.stop();
});

test('a key is proved to a relay that has an identity, and to no other one', async () => {
  const identity = await Identity.generate();
  const c = new JsonClient({ url: relay.url + '/json', identity, WebSocket, prove: true, relay: relay.key });
  clients.push(c);
  const told = next<{ proven: boolean }>((f) => c.on('connected', f));
  await c.connect();
  assert.equal((await told)[0]!.proven, true);
  await c.close();
  // The relay wants it from now on, and gets it.
  const again = new JsonClient({ url: relay.url + '/json', identity, WebSocket });
  clients.push(again);
  const toldAgain = next<{ proven: boolean }>((f) => again.on('connected', f));
  await again.connect();
  assert.equal((await toldAgain)[0]!.proven, true);
  await assert.rejects(newClient({ prove: true, relay: identity.key }), { code: 'key-mismatch' });
});

test('topics, rooms and matches', async () => {
  const [alice, bob] = [await newClient(), await newClient()];
  const got: JsonPublication[] = [];
  const end = await bob.subscribe('a/#', (p) => got.push(p));
  await alice.publish('a/b', 'one', { retain: true });
  const kept: JsonPublication[] = [];
  await alice.subscribe('a/b', (p) => kept.push(p));
  await until(() => got.length + kept.length >= 2);
  assert.deepEqual(got, [{ name: 'a/b', from: alice.address, ct: 'one', retained: false }]);
  assert.deepEqual(kept, [{ name: 'a/b', from: alice.address, ct: 'one', retained: true }]);
  await end();
  await assert.rejects(alice.subscribe('a/#/b', () => undefined), { code: 'refused', message: 'refused: invalid topic filter' });

  const heard: JsonPublication[] = [];
  assert.equal(await alice.join('lobby', (p) => heard.push(p)), 1);
  assert.equal(await bob.join('lobby', () => undefined), 2);
  await bob.sendRoom('lobby', 'hi');
  await until(() => heard.length > 0);
  assert.deepEqual(heard, [{ name: 'lobby', from: bob.address, ct: 'hi', retained: false }]);
  await bob.leave('lobby');

  const search = alice.findMatch('pong');
  assert.equal(await bob.findMatch('pong'), alice.address);
  assert.equal(await search, bob.address);
  assert.equal((await alice.capabilities()).dialect, 'json');
});

test('after a lost connection it is registered and subscribed again', async () => {
  const port = await freePort();
  let other = await startRelay([], port);
  const c = await newClient({}, other);
  const got: string[] = [];
  await c.subscribe('news', (p) => got.push(p.ct));
  const gap = next<unknown>((f) => c.on('gap', f));
  const back = next<unknown>((f) => c.on('connected', f));
  await other.stop('SIGKILL');
  other = await startRelay([], port);
  assert.deepEqual(await gap, [{ topic: 'news' }]);
  await back;
  await c.publish('news', 'again');
  await until(() => got.length > 0);
  assert.deepEqual(got, ['again']);
  await c.close();
  await other.stop();
});

test('an address that is taken over ends the client', async () => {
  const identity = await Identity.generate();
  const first = await newClient({ identity });
  const ended = next<{ retryIn: number | undefined }>((f) => first.on('disconnected', f));
  await newClient({ identity });
  assert.equal((await ended)[0]!.retryIn, undefined);
});

const python = ['/usr/bin/python3', 'python3'].find((name) => {
  try {
    execFileSync(name, ['-c', 'import nacl.public'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
});

test('libsodium reads what we send, and we read what it sends', { skip: python === undefined && 'there is no PyNaCl' }, async () => {
  const alice = await newClient({ address: 'js' });
  const client = fileURLToPath(new URL('examples/python/client.py', root));
  const args = ['-u', client, '--relay', new URL(tcp).host, '--address', 'py', '--to', 'js', '--text', 'from Python', '--wait', '60'];
  const run = spawn(python!, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  process.once('exit', () => run.kill('SIGKILL'));
  const [m] = await next<JsonMessage>((f) => alice.on('message', f));
  assert.deepEqual([m!.from, m!.text], ['py', 'from Python']);
  await alice.send('py', 'from a browser');
  for await (const line of createInterface(run.stdout)) if (/from a browser/.test(line)) return void run.kill();
  assert.fail('Python has not shown it');
});

