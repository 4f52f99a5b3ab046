import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import { isFilter, isTopic, matches } from '../src/filters.js';
import type { Gap, Publication } from '../src/index.js';
import { Identity } from '../src/index.js';
import { closeClients, freePort, idleClient, newClient, next, type Relay, scratch, startRelay, until } from './relay.js';
import { cases } from './vectors.js';

const clear = { clear: true } as const;

let relay: Relay;

before(async () => {
  relay = await startRelay(['--data', scratch()]);
});

after(async () => {
  await closeClients();
  await relay.stop();
});

test('filters match as topics.json says', () => {
  const file = 'pubsub/testdata/topics.json';
  for (const c of cases(file, 'matches')) assert.equal(matches(c.filter, c.topic), c.match, `${c.filter} ${c.topic}`);
  for (const c of cases(file, 'filters')) assert.equal(isFilter(c.filter), c.valid, c.filter);
  for (const c of cases(file, 'topics')) assert.equal(isTopic(c.topic), c.valid, c.topic);
});

test('what is published reaches each listener of a filter that matches, once', async () => {
  const [alice, bob] = [await newClient(relay), await newClient(relay)];
  const got: string[] = [];
  const listen = (name: string) => (p: Publication) => got.push(`${name}:${p.name}:${p.text}:${p.from === alice.key}`);
  const end = await bob.subscribe('home/+/temp', listen('one'), clear);
  await bob.subscribe('home/#', listen('all'), clear);
  await bob.subscribe('home/#', listen('again'), clear);
  await alice.publish('home/kitchen/temp', '21', clear);
  await until(() => got.length === 3); // the receipt may overtake
  await end();
  await alice.publish('home/hall/temp', '18', clear);
  await alice.publish('garden', '3', clear);
  await until(() => got.length === 5);
  assert.deepEqual(got, [
    'one:home/kitchen/temp:21:true', 'all:home/kitchen/temp:21:true', 'again:home/kitchen/temp:21:true',
    'all:home/hall/temp:18:true', 'again:home/hall/temp:18:true',
  ]);
});

test('a retained value comes to those who subscribe later, until it is cleared', async () => {
  const alice = await newClient(relay);
  await alice.publish('state/x', 'on', { ...clear, retain: true });
  const bob = await newClient(relay);
  const kept = next<Publication>((f) => {
    void bob.subscribe('state/#', f, clear);
    return () => undefined;
  });
  const [p] = await kept;
  assert.deepEqual([p!.text, p!.retained, p!.from], ['on', true, alice.key]);
  await alice.publish('state/x', '', { ...clear, retain: true });
  const carol = await newClient(relay);
  await carol.subscribe('state/#', () => assert.fail('cleared'), clear);
  await wait(200);
});

test('refusals of topics, filters and rooms are told', async () => {
  const alice = await newClient(relay);
  await assert.rejects(alice.publish('a/#', 'x', clear), { code: 'invalid-topic' });
  await assert.rejects(alice.subscribe('a/#/b', () => undefined, clear), { code: 'invalid-filter' });
  await assert.rejects(alice.join('', () => undefined, clear), { code: 'malformed' });
  await assert.rejects(alice.publish('a', 'x', {} as never), { code: 'malformed', byRelay: false });
  await assert.rejects(alice.subscribe('a', () => undefined, {} as never), { code: 'malformed', byRelay: false });
});

test('rooms', async () => {
  const [alice, bob] = [await newClient(relay), await newClient(relay)];
  const heard: Publication[] = [];
  await alice.join('lobby', (p) => heard.push(p), clear);
  const room = await bob.join('lobby', () => assert.fail('nothing for bob'), clear);
  assert.equal(room.members, 2);
  await room.send('hello');
  await until(() => heard.length > 0);
  assert.deepEqual(heard.map((p) => [p.name, p.text, p.from]), [['lobby', 'hello', bob.key]]);
  await room.leave();
  await assert.rejects(room.send('gone'), { code: 'not-in-room' });
  await assert.rejects(alice.join('lobby', () => undefined, clear), { code: 'malformed' });
});

test('matches', async () => {
  const [alice, bob] = [await newClient(relay), await newClient(relay)];
  const first = alice.findMatch('chess');
  assert.equal(await bob.findMatch('chess'), alice.key);
  assert.equal(await first, bob.key);
  const abort = new AbortController();
  const given = alice.findMatch('go', abort.signal);
  await alice.capabilities(); // which is answered after what was asked before
  abort.abort();
  await assert.rejects(given, { name: 'AbortError' });
  await alice.capabilities();
  const other = new AbortController();
  const none = bob.findMatch('go', other.signal);
  await wait(100);
  other.abort();
  await assert.rejects(none, { name: 'AbortError' });
});

test('after the relay has come back, subscriptions, rooms and searches are there again, and the gap is told', async () => {
  const data = scratch();
  const port = await freePort();
  let other = await startRelay(['--data', data], port);
  const [alice, bob] = [await newClient(other), await newClient(other)];
  const got: string[] = [];
  await bob.subscribe('news/#', (p) => got.push(p.text), clear);
  await bob.join('room', (p) => got.push(p.text), clear);
  const search = bob.findMatch('pong');
  await wait(50);
  const gaps = next<Gap>((f) => bob.on('gap', f), 2);
  const back = Promise.all([next((f) => alice.on('connected', f)), next((f) => bob.on('connected', f))]);
  await other.stop('SIGKILL');
  other = await startRelay(['--data', data], port);
  assert.deepEqual(await gaps, [{ topic: 'news/#' }, { room: 'room' }]);
  await back;
  await bob.capabilities(); // answered after what is asked again by itself
  const room = await alice.join('room', () => undefined, clear);
  assert.equal(room.members, 2);
  await alice.publish('news/today', 'paper', clear);
  await room.send('voice');
  assert.equal(await alice.findMatch('pong'), bob.key);
  assert.equal(await search, alice.key);
  await until(() => got.length === 2);
  assert.deepEqual(got, ['paper', 'voice']);
  await Promise.all([alice.close(), bob.close()]);
  await other.stop();
});

test('servers are listed, and another one is used when it is selected', async () => {
  const second = await startRelay();
  const c = idleClient(relay, { identity: await Identity.generate(), url: [{ url: relay.url }, { url: second.url, key: second.key }] });
  await c.connect();
  assert.equal(c.server.url, relay.url);
  const changed = next<unknown>((f) => c.on('serversChanged', f));
  const moved = next<{ key?: string; url: string }>((f) => c.on('connected', f));
  await c.selectServer(second.url);
  await changed;
  const [info] = await moved;
  assert.deepEqual([info!.url, info!.key, c.server.url], [second.url, second.key, second.url]);
  await assert.rejects(c.selectServer('ws://127.0.0.1:1'), { code: 'malformed' });
  await c.close();
  await second.stop();
});

