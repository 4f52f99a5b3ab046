import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { concat, hex, random, u32, utf8 } from '../src/bytes.js';
import { GroupKey } from '../src/crypto/group.js';
import { padme } from '../src/crypto/padme.js';
import { type Group, Groups } from '../src/groups.js';
import { Identity, MemoryStorage, type Publication, type SottoError } from '../src/index.js';
import { closeClients, newClient, next, type Relay, scratch, startRelay, until } from './relay.js';
import { bytes } from './vectors.js';

let relay: Relay;

before(async () => {
  relay = await startRelay(['--data', scratch()]);
});

after(async () => {
  await closeClients();
  await relay.stop();
});

// What the Go package crypto makes of a key.
const known = new GroupKey(bytes('0102030405060708090a0b0c0d0e0f100000000315161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334'));

test('what Go seals for a group opens, and names are blinded as in Go', async () => {
  const sealed = bytes('0102030405060708090a0b0c0d0e0f10000000038bd6212087ecee3ce9d77780e42dacb5095224e8488d3e832e34c6ae4a7b889dd539f915bb685c59dc2a3f8c');
  assert.equal(Buffer.from(await known.open('a/b', sealed)).toString(), 'hello group');
  await assert.rejects(known.open('a/c', sealed), { code: 'unopened' });
  assert.equal(await known.blind('home/küche/home', 'blinded', false), 'zZDjalbZG8AWdAwohyeTHg/PCJscg7nRYy58V0uK7Ip8Q/wngdO2oouBaR_6WLZZYYTA');
  assert.equal(await known.blind('home/küche/home', 'flat', false), 'zZDjalbZG8AWdAwohyeTHg/6LsGg_youpwj1P9kUqMnWA/zZDjalbZG8AWdAwohyeTHg');
  assert.equal(await known.blind('home/#', 'blinded', true), 'zZDjalbZG8AWdAwohyeTHg/#');
  assert.equal(await known.blind('a/+', 'clear', true), 'a/+');
});

test('card secrets without a storage are those of Go', async () => {
  const id = await Identity.fromSeed(Uint8Array.from({ length: 32 }, (_, i) => i + 1));
  assert.equal(hex(await id.cardSecret(7n)), 'c931a8fd428649bdb12daa49e1d3e651389b816aaa22120d554d509563db211f0b3c64cdd2225adca337916b6e6dba39387b2000b0e0339dc8649f359756a17c');
});

test('names that cannot be blinded are errors', async () => {
  for (const [name, names, isFilter] of [
    ['', 'blinded', false], ['a/+', 'blinded', false], ['a/#', 'flat', false], ['a/+/b', 'blinded', true], ['#/a', 'flat', true],
    ['a+', 'flat', true], ['a\0', 'flat', false], [Array(23).fill('a').join('/'), 'blinded', false],
  ] as const) {
    await assert.rejects(known.blind(name, names, isFilter), { code: 'malformed' }, name);
  }
  assert.match(await known.blind('+/a/+', 'flat', true), /^\+\/.{22}\/\+$/);
});

test('epochs are numbered as in Go', () => {
  for (const [at, want] of [
    [-(2 ** 40), 4], [0, 4], [4, 4], [5, 5], [2 ** 31, 2 ** 31], [2 ** 32 - 2, 2 ** 32 - 2], [2 ** 32 - 1, 4], [2 ** 32 + 9, 4],
  ] as const) {
    assert.equal(known.next(at * 1000).epoch, want, `${at} s`);
  }
  assert.ok(Math.abs(known.next().epoch - Date.now() / 1000) < 10);
  const last = new GroupKey(concat(known.encode().subarray(0, 16), u32(2 ** 32 - 1), known.encode().subarray(20)));
  assert.throws(() => last.next(), { code: 'malformed' });
});

test('sealed publications have Padmé lengths, and other keys do not open them', async () => {
  const sealed = await known.seal('t', utf8('x'.repeat(700)));
  const length = sealed.length - 16 - 4 - 12 - 16;
  assert.equal(length, padme(length));
  const other = known.next(0);
  assert.deepEqual([other.id, other.epoch, other.fits(sealed), known.fits(sealed)], [known.id, 4, false, true]);
  for (const bad of [sealed.subarray(0, 47), bytes('')]) await assert.rejects(known.open('t', bad), { code: 'malformed' });
  assert.throws(() => new GroupKey(bytes('00'.repeat(51))), { code: 'malformed' });
  assert.throws(() => new GroupKey(bytes('01'.repeat(20) + '00'.repeat(32))), { code: 'weak-key' });
});

test('keys are taken from the owner of a group that is wanted, and newer ones only', async () => {
  const [owner, self] = ['a'.repeat(64), 'b'.repeat(64)];
  const heard: number[] = [];
  const options = {
    self, storage: new MemoryStorage(), prefix: 'group/', accept: (o: string) => o === owner,
    send: async () => undefined, onKey: (g: Group) => heard.push(g.epoch), onError: () => undefined,
  };
  const groups = new Groups(options);
  const key = (epoch: number) => concat(bytes('01'.repeat(16)), u32(epoch), random(32));
  const first = key(2);
  await groups.take(owner, first);
  await groups.take(owner, first);
  await groups.take(owner, key(3));
  await assert.rejects(groups.take(owner, key(3)), { code: 'denied' });
  await assert.rejects(groups.take(owner, key(1)), { code: 'denied' });
  await assert.rejects(groups.take('c'.repeat(64), key(9)), { code: 'denied' });
  await groups.take(self, key(9));
  assert.deepEqual(heard, [2, 3]);
  const again = new Groups(options);
  await again.load();
  assert.deepEqual(again.list().map((g) => [g.owner, g.id, g.epoch]), [[owner, '01'.repeat(16), 3]]);
  const sealed = await new GroupKey(first).seal('t', utf8('old'));
  assert.equal(Buffer.from(await again.list()[0]!.open('t', sealed)).toString(), 'old');
  await assert.rejects(again.invite(again.list()[0]!, owner), (e: SottoError) => ['denied', 'weak-key'].includes(e.code));
});

test('members read what is published, blinded too, and who has left does not', async () => {
  const owner = await newClient(relay);
  const [bob, carol] = [await newClient(relay, { acceptGroup: () => true }), await newClient(relay, { acceptGroup: () => true })];
  const group = await owner.createGroup();
  const invited = Promise.all([next<Group>((f) => bob.on('group', f)), next<Group>((f) => carol.on('group', f))]);
  await owner.invite(group, bob.key);
  await owner.invite(group, carol.key);
  const [[ofBob], [ofCarol]] = await invited as [[Group], [Group]];
  assert.deepEqual([ofBob.owner, ofBob.id, ofBob.epoch], [owner.key, group.id, 1]);

  const got: string[] = [];
  const listen = (who: string) => (p: Publication) => got.push(`${who} ${p.name.length > 20 ? '?' : p.name} ${p.text}`);
  const blinded = { group: ofBob, names: 'blinded' } as const;
  await bob.subscribe('plans/today', listen('bob'), blinded);
  await bob.subscribe('plans/#', listen('bob#'), blinded);
  await carol.subscribe('open', listen('carol'), { group: ofCarol });
  const seen: string[] = [];
  await carol.subscribe('#', (p) => seen.push(p.name + p.text), { clear: true });
  await owner.publish('plans/today', 'rest', { group, names: 'blinded' });
  await owner.publish('open', 'all', { group });
  await until(() => got.length === 3 && seen.length === 2);
  assert.deepEqual(got.sort(), ['bob plans/today rest', 'bob# ? rest', 'carol open all']);
  assert.ok(seen.length === 2 && !seen.join().includes('plans') && !seen.join().includes('rest'));

  const rekeyed = next<Group>((f) => bob.on('group', f));
  await owner.expel(group, carol.key);
  assert.ok((await rekeyed)[0]!.epoch > ofCarol.epoch);
  assert.equal(ofCarol.epoch, 1);
  const errors = next<Error>((f) => carol.on('error', f));
  await owner.publish('open', 'secret', { group });
  assert.equal(((await errors)[0] as SottoError).code, 'unknown-key');
  assert.ok(!got.includes('carol open secret'));

  // In a room, too; and what is not sealed is dropped there.
  const heard: Publication[] = [];
  await bob.join('den', (p) => heard.push(p), { group: ofBob });
  await (await carol.join('den', () => undefined, { clear: true })).send('not a member');
  await (await owner.join('den', () => undefined, { group })).send('a member');
  await until(() => heard.length > 0);
  assert.deepEqual(heard.map((p) => p.text), ['a member']);
});
