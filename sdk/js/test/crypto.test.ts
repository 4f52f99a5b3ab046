import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { base64, equal, fromBase64, hex, utf8, view } from '../src/bytes.js';
import { decodeCard, maxCardLife, newCard, newCardSecret, openKeysOf, sealKeyOf } from '../src/crypto/card.js';
import { decodeContent, encodeContent, isSafeFileName } from '../src/crypto/content.js';
import { isReducedScalar, toMontgomery } from '../src/crypto/curve.js';
import { decrypt, encrypt } from '../src/crypto/encrypted.js';
import { fingerprint } from '../src/crypto/fingerprint.js';
import { GroupKey } from '../src/crypto/group.js';
import { Identity, checkedKeyBytes, newID } from '../src/crypto/identity.js';
import { openBox, sealBox } from '../src/crypto/naclbox.js';
import { padme } from '../src/crypto/padme.js';
import { type OpenKey, derivedOpenKey, derivedSealKey, openSealed, seal } from '../src/crypto/seal.js';
import { openSigned, signContent } from '../src/crypto/signed.js';
import { verify } from '../src/crypto/verify.js';
import { exchange, exportPrivate, importPair } from '../src/crypto/x25519.js';
import { words } from '../src/crypto/words.js';
import { decodeFrame } from '../src/wire/frame.js';
import { bytes, cases, root } from './vectors.js';

test('signatures at the edges are judged strictly', async () => {
  let refused = 0;
  for (const c of cases('crypto/testdata/ed25519_edge.json')) {
    const verified = verify(bytes(c.public), bytes(c.message), bytes(c.signature));
    if (c.accept) {
      await verified;
    } else {
      refused++;
      await assert.rejects(verified, (e: { code: string }) => ['weak-key', 'bad-signature'].includes(e.code), c.name);
    }
  }
  assert.ok(refused > 20);
});

test('the second half of a signature is below the order of the base point', () => {
  // WebCrypto of Node sees to that too, others need not.
  const order = 'edd3f55c1a631258d69cf7a2def9de14' + '00'.repeat(15) + '10';
  assert.equal(isReducedScalar(bytes(order)), false);
  assert.equal(isReducedScalar(bytes('ec' + order.slice(2))), true);
  assert.equal(isReducedScalar(bytes('ff'.repeat(32))), false);
});

test('no inspection shows a secret', async () => {
  const id = await Identity.fromSeed(bytes('5a'.repeat(32)), { extractable: true });
  const group = new GroupKey(bytes('01'.repeat(20) + '5a'.repeat(32)));
  for (const text of [inspect({ id, group }, { depth: 9, showHidden: true }), JSON.stringify({ id, group })]) {
    assert.ok(!/5a5a5a|90, ?90/.test(text), text);
  }
});

test('the birational map is libsodium’s', async () => {
  for (const c of cases('crypto/testdata/ed25519_to_x25519.json')) {
    const id = await Identity.fromSeed(bytes(c.ed25519_seed), { extractable: true });
    assert.equal(id.key, c.ed25519_public);
    assert.equal(hex(toMontgomery(id.public)), c.x25519_public);
    assert.equal(hex(id.derived.public), c.x25519_public);
    // Engines clamp when they use the key, so what they export may not be clamped.
    const pair = await importPair('X25519', bytes(c.x25519_private), true);
    assert.equal(hex(pair.public), c.x25519_public);
    const peer = (await Identity.generate()).derived;
    assert.deepEqual(await exchange(id.derived.private, peer.public), await exchange(pair.private, peer.public));
    assert.equal(hex(await exportPrivate(pair.private)), c.x25519_private);
  }
});

test('weak X25519 keys are refused', async () => {
  const id = await Identity.generate();
  for (const weak of [
    '00'.repeat(32), '01' + '00'.repeat(31), 'ed' + 'ff'.repeat(30) + '7f', 'ee' + 'ff'.repeat(30) + '7f',
    'e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800', 'ab', 'ff'.repeat(32),
    '5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157', 'ec' + 'ff'.repeat(30) + '7f',
  ]) {
    await assert.rejects(exchange(id.derived.private, bytes(weak)), { code: 'weak-key' }, weak);
  }
  const peer = (await Identity.generate()).derived.public;
  const shared = await exchange(id.derived.private, peer);
  const withBit = peer.slice();
  withBit[31]! |= 0x80;
  assert.deepEqual(await exchange(id.derived.private, withBit), shared);
});

test('cards', async () => {
  for (const c of cases('crypto/testdata/card.json')) {
    const card = await decodeCard(bytes(c.card));
    assert.equal(hex(card.identity), c.identity);
    assert.equal(card.serial, BigInt(c.serial));
    assert.equal(card.notBefore, c.not_before_ms);
    assert.equal(card.notAfter, c.not_after_ms);
    assert.equal(hex(card.x25519), c.x25519_public);
    assert.equal(hex(card.xwing), c.xwing_public);
    const self = await Identity.fromSeed(bytes(c.identity_seed));
    const secret = bytes(c.x25519_private + c.xwing_private_seed);
    const made = await newCard(self, card.serial, card.notBefore, card.notAfter, secret);
    assert.equal(hex(made.encoded), c.card);
    const forged = bytes(c.card);
    forged[100]! ^= 1;
    await assert.rejects(decodeCard(forged), { code: 'bad-signature' });
    await assert.rejects(decodeCard(bytes(c.card).slice(1)), { code: 'malformed' });
  }
  const self = await Identity.generate();
  await assert.rejects(newCard(self, 1n, 0, maxCardLife + 1, newCardSecret()), { code: 'malformed' });
  await assert.rejects(newCard(self, 1n, 2, 1, newCardSecret()), { code: 'malformed' });
});

test('sealed messages of sealed.json open, for nobody else and under no other id', async () => {
  for (const c of cases('crypto/testdata/sealed.json')) {
    const f = decodeFrame(bytes(c.frame));
    const self = await Identity.fromSeed(bytes(c.recipient_seed));
    const key: OpenKey =
      c.suite === 3
        ? { suite: 3, id: bytes(c.key_id), seed: bytes(c.recipient_private) }
        : { suite: 2, id: bytes(c.key_id), pair: await importPair('X25519', bytes(c.recipient_private), false) };
    const keys = [derivedOpenKey(await Identity.generate()), key];
    const content = await openSealed(self.public, f.sender, f.id, f.signature, f.payload, [key]);
    assert.equal(content.type, c.content_type);
    const encoded = hex(encodeContent(content)).slice(2);
    assert.ok(encoded.endsWith(c.content), 'content');
    const { sender, id, signature, payload } = f;
    await assert.rejects(openSealed(self.public, sender, newID(), signature, payload, keys), { code: 'bad-signature' });
    const other = (await Identity.generate()).public;
    await assert.rejects(openSealed(self.public, other, id, signature, payload, keys), { code: 'bad-signature' });
    await assert.rejects(openSealed(other, sender, id, signature, payload, keys), { code: 'unknown-key' });
    await assert.rejects(openSealed(self.public, sender, id, signature, payload, []), { code: 'unknown-key' });
    // Somebody who signs what he saw as his own does not open it.
    const thief = await Identity.generate();
    const resigned = await thief.sign(
      new Uint8Array([...utf8('sotto frame v1\x00'), 0x1c, ...id, ...payload]),
    );
    await assert.rejects(openSealed(self.public, thief.public, id, resigned, payload, [key]), { code: 'unopened' });
  }
});

test('what is sealed opens, in both suites, and is as long as Padmé has it', async () => {
  const [alice, bob] = [await Identity.generate(), await Identity.generate()];
  const secret = newCardSecret();
  const card = await newCard(bob, 1n, Date.now(), Date.now() + 1000, secret);
  const keys = [derivedOpenKey(bob), ...(await openKeysOf(card, secret))];
  for (const to of [derivedSealKey(bob.public), sealKeyOf(card, 2), sealKeyOf(card, 3)]) {
    const id = newID();
    const data = utf8('x'.repeat(777));
    const { payload, signature } = await seal(alice, to, id, { type: 0, data });
    const plaintext = payload.length - 41 - (to.suite === 3 ? 1120 : 32) - 16;
    assert.equal(plaintext, padme(plaintext));
    const content = await openSealed(bob.public, alice.public, id, signature, payload, keys);
    assert.deepEqual(content, { type: 0, data });
  }
});

test('Padmé lengths', () => {
  for (const [n, want] of [[0, 0], [1, 1], [5, 5], [9, 10], [100, 104], [1000, 1024], [1025, 1088], [4 << 20, 4 << 20]]) {
    assert.equal(padme(n!), want, String(n));
  }
});

test('signed messages of the vectors', async () => {
  for (const c of cases('crypto/testdata/brep_signed.json')) {
    for (const [frame, want] of [[c.header_signed_frame, 'signed'], [c.embedded_signed_frame, 'legacy']]) {
      const f = decodeFrame(bytes(frame));
      const { content, trust } = await openSigned(bytes(c.recipient), f.sender, f.signature, f.payload);
      assert.equal(trust, want);
      assert.equal(content.type, c.content_type);
      assert.ok(hex(encodeContent(content)).endsWith(c.content));
      const damaged = f.payload.slice();
      damaged[damaged.length - 1]! ^= 1;
      await assert.rejects(openSigned(bytes(c.recipient), f.sender, f.signature, damaged), { code: 'bad-signature' });
    }
  }
  for (const c of cases('crypto/testdata/brep_signed_both.json')) {
    const f = decodeFrame(bytes(c.frame));
    const { content } = await openSigned(bytes(c.recipient), f.sender, f.signature, f.payload);
    const self = await Identity.fromSeed(bytes(c.sender_seed));
    const made = await signContent(self, bytes(c.recipient), content);
    assert.equal(hex(made.payload), hex(f.payload));
    assert.equal(hex(made.signature), hex(f.signature));
  }
});

test('what a v1 handshake may have signed counts as unsigned', async () => {
  const [alice, bob] = [await Identity.generate(), await Identity.generate()];
  const challenge = bytes('ab'.repeat(32));
  const payload = new Uint8Array([...bob.public, ...(await alice.sign(challenge)), ...challenge]);
  const { trust } = await openSigned(bob.public, alice.public, new Uint8Array(64), payload);
  assert.equal(trust, 'unsigned');
  await assert.rejects(signContent(alice, bob.public, { type: 0, data: bytes('01') }), { code: 'malformed' });
});

test('encrypted messages of brep_encrypted.json', async () => {
  for (const c of cases('crypto/testdata/brep_encrypted.json')) {
    const seedless = await (await Identity.generate()).withX25519(bytes(c.recipient_x25519_private));
    // The vectors give no seed of the recipient: only its X25519 key opens.
    const self = Object.create(seedless, { public: { value: bytes(c.recipient) } }) as Identity;
    for (const frame of [c.frame, c.frame_signed_without_target]) {
      const f = decodeFrame(bytes(frame));
      const content = await decrypt(self, f.sender, f.signature, f.payload);
      assert.equal(content.type, c.content_type);
      assert.ok(hex(encodeContent(content)).endsWith(c.content));
      const damaged = f.payload.slice();
      damaged[damaged.length - 1]! ^= 1;
      await assert.rejects(decrypt(self, f.sender, f.signature, damaged), { code: 'bad-signature' });
    }
  }
  const [alice, bob] = [await Identity.generate(), await (await Identity.generate()).withX25519(bytes('07'.repeat(32)))];
  const { payload, signature } = await encrypt(alice, bob.public, bob.x25519.public, { type: 1, data: utf8('hi') });
  assert.deepEqual(await decrypt(bob, alice.public, signature, payload), { type: 1, data: utf8('hi') });
});

test('boxes of nacl_box.json', async () => {
  for (const c of cases('crypto/testdata/nacl_box.json')) {
    const a = await importPair('X25519', bytes(c.a_private), false);
    const b = await importPair('X25519', bytes(c.b_private), false);
    for (const cipher of ['xsalsa20', 'xchacha20'] as const) {
      const box = bytes(c[cipher + 'poly1305']);
      const msg = await openBox(b.private, a.public, bytes(c.nonce), box, cipher);
      assert.equal(hex(msg), c.message);
      const made = await sealBox(a.private, b.public, msg, cipher);
      assert.deepEqual(await openBox(b.private, a.public, made.nonce, made.box, cipher), msg);
      box[0]! ^= 1;
      await assert.rejects(openBox(b.private, a.public, bytes(c.nonce), box, cipher), { code: 'unopened' });
    }
  }
});

test('identities travel as text, and damage is noticed', async () => {
  const id = await (await Identity.generate({ extractable: true })).withX25519(bytes('09'.repeat(32)));
  const text = await id.export();
  const back = await Identity.import(text, { extractable: true });
  assert.equal(await back.export(), text);
  assert.equal(JSON.stringify({ back }), JSON.stringify({ back: id.key }));
  const locked = await Identity.import(text);
  assert.equal(locked.key, id.key);
  await assert.rejects(locked.export(), { code: 'identity' });
  assert.deepEqual(await locked.sign(utf8('m')), await id.sign(utf8('m')));
  assert.deepEqual(locked.x25519.public, id.x25519.public);
  for (const bad of [
    '', text.slice(1), text.slice(0, -1), text + '\n', text.toUpperCase(), text.replace(/ed25519-public .*\n/, ''),
    text.replace(/seed ../, 'seed 00'), text.replace('v1', 'v2'), text + 'extra 00\n',
  ]) {
    await assert.rejects(Identity.import(bad), { code: 'identity' }, bad.slice(0, 30));
  }
  await assert.rejects(Identity.fromSeed(new Uint8Array(32)), { code: 'weak-key' });
});

test('keys are 64 lower-case digits of a key that somebody can hold', async () => {
  const { key } = await Identity.generate();
  assert.equal(hex(checkedKeyBytes(key)), key);
  for (const bad of [key.toUpperCase() + ' ', key.slice(1), key + '0', 'g'.repeat(64)]) {
    assert.throws(() => checkedKeyBytes(bad), { code: 'malformed' });
  }
  for (const weak of ['00'.repeat(32), '01' + '00'.repeat(31), 'ff'.repeat(32), '02' + '00'.repeat(31)]) {
    assert.throws(() => checkedKeyBytes(weak), { code: 'weak-key' }, weak);
  }
});

test('content', () => {
  const text = { type: 1, data: utf8('héllo') };
  assert.deepEqual(decodeContent(encodeContent(text)), text);
  const file = { type: 3, name: 'a.txt', data: utf8('1') };
  assert.deepEqual(decodeContent(encodeContent(file)), file);
  for (const bad of ['', '01ff', '03', '0302', '030161', '03012f', '0300', '03022e2e', '0301ff']) {
    if (bad === '030161') continue; // an empty file "a"
    assert.throws(() => decodeContent(bytes(bad)), { code: 'malformed' }, bad);
  }
  for (const name of ['', '.', '..', 'a/b', 'a\\b', 'c:d', 'a\0', 'nul', 'NUL.txt', 'com1', 'LPT².x', 'a.', 'a ', 'é'.repeat(128), '\ud800']) {
    assert.ok(!isSafeFileName(name), name);
  }
  for (const name of ['a', '.hidden', 'com', 'com10', 'nullo', 'é'.repeat(127)]) assert.ok(isSafeFileName(name), name);
});

test('fingerprints', async () => {
  assert.equal(words.split(' ').join('\n') + '\n', readFileSync(new URL('crypto/words.txt', root), 'utf8'));
  for (const [key, want] of [
    ['00'.repeat(32), 'wet radar industry observe fury talent'],
    ['000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f', 'genuine cruel spatial garbage supreme cage'],
    ['703eba349c7a1153627387b8f2de7a28a05466eada74d5ced4589ac9aa08b2eb', 'elevator eternal smart impulse hawk chunk'],
  ]) {
    assert.equal(await fingerprint(key!), want);
  }
});

test('base64 and numbers are canonical', () => {
  assert.equal(base64(utf8('any')), 'YW55');
  assert.ok(equal(fromBase64('YQ==')!, utf8('a')));
  for (const bad of ['YQ', 'YR==', 'Y Q==', 'YQ==\n', '-_==']) assert.equal(fromBase64(bad), undefined, bad);
  assert.equal(view(bytes('01020304')).getUint32(0), 0x01020304);
});
