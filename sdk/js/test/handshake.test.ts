import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hex } from '../src/bytes.js';
import { Identity } from '../src/crypto/identity.js';
import { Handshake } from '../src/handshake.js';
import { MemoryStorage } from '../src/storage.js';
import { addressOf, expectedKey, rememberKey } from '../src/trust.js';
import { decodeFrame, encodeFrame, type Frame, newFrame, Type } from '../src/wire/frame.js';
import { bytes, cases } from './vectors.js';

const v2 = cases('handshake/testdata/handshake_v2.json').filter((c) => c.role === 0);
const v1 = cases('handshake/testdata/brep_handshake_v1.json');

async function begin(c: Record<string, string>, expect?: string, allowLegacy = false): Promise<Handshake> {
  const identity = await Identity.fromSeed(bytes(c.client_seed ?? c.seed!));
  const options = { identity, allowLegacy, ...(expect && { expect: bytes(expect) }) };
  return new Handshake(options, () => bytes(c.client_nonce!));
}

test('a client answers as handshake_v2.json says, and takes the confirmation', async () => {
  assert.ok(v2.length > 1);
  for (const c of v2) {
    for (const expect of [undefined, c.relay as string]) {
      const h = await begin(c, expect);
      const answer = await h.receive(decodeFrame(bytes(c.challenge_frame)));
      assert.equal(hex(encodeFrame(answer!)), c.response_frame);
      assert.ok(!h.relay);
      assert.equal(await h.receive(decodeFrame(bytes(c.confirm_frame))), undefined);
      const durable = (bytes(c.confirm_frame)[124]! & 1) !== 0;
      assert.deepEqual(h.relay, { key: c.relay, version: 2, durable, firstContact: expect === undefined });
      await assert.rejects(h.receive(decodeFrame(bytes(c.confirm_frame))), { code: 'denied' });
    }
  }
});

test('a confirmation in which a bit is another one is refused, and changes nothing', async () => {
  const c = v2[0]!;
  const h = await begin(c);
  const challenge = decodeFrame(bytes(c.challenge_frame));
  await h.receive(challenge);
  const good = bytes(c.confirm_frame);
  for (const bit of [2, 24, 55, 56, 100, 119, 120, 121, 124]) {
    const bad = good.slice();
    bad[bit]! ^= 1;
    await assert.rejects(async () => h.receive(decodeFrame(bad)), (e: { code: string }) => e.code !== 'internal', String(bit));
    assert.ok(!h.relay);
  }
  await assert.rejects(h.receive(challenge), { code: 'malformed' });
  await assert.rejects(h.receive(newFrame(Type.handshake, { payload: Uint8Array.of(1) })), { code: 'denied' });
  await h.receive(decodeFrame(good));
  assert.ok(h.relay);
});

test('the relay of another connection does not confirm', async () => {
  const [c, other] = [v2[0]!, v2[1]!];
  const h = await begin(c);
  await h.receive(decodeFrame(bytes(c.challenge_frame)));
  await assert.rejects(h.receive(decodeFrame(bytes(other.confirm_frame))), { code: 'not-authenticated' });
});

test('v1 is spoken only where it is allowed, and never with a relay that has a key', async () => {
  for (const c of v1) {
    const challenge = newFrame(Type.handshake, { payload: bytes(c.challenge) });
    await assert.rejects((await begin(c)).receive(challenge), { code: 'legacy-relay' });
    await assert.rejects((await begin(c, v2[0]!.relay, true)).receive(challenge), { code: 'legacy-relay' });
    const h = await begin(c, undefined, true);
    assert.equal(hex(encodeFrame((await h.receive(challenge))!)), c.response_frame);
    await assert.rejects(h.receive(newFrame(Type.handshake, { payload: Uint8Array.of(2) })), { code: 'malformed' });
    await h.receive(newFrame(Type.handshake, { payload: Uint8Array.of(1) }));
    assert.deepEqual(h.relay, { version: 1, durable: false, firstContact: false });
  }
});

test('challenges that are none, or of a weak or another key, are refused', async () => {
  const c = v2[0]!;
  const good = decodeFrame(bytes(c.challenge_frame));
  const refused: [Partial<Frame>, string][] = [
    [{ type: Type.data }, 'not-authenticated'],
    [{ payload: good.payload.subarray(1) }, 'malformed'],
    [{ signature: bytes('01'.repeat(64)) }, 'malformed'],
    [{ sender: bytes('01' + '00'.repeat(31)) }, 'weak-key'],
  ];
  for (const [change, code] of refused) {
    await assert.rejects((await begin(c)).receive({ ...good, ...change }), { code });
  }
  await assert.rejects((await begin(c, v2[1]!.relay)).receive(good), { code: 'key-mismatch' });
});

test('the key seen first at an address is the one expected there', async () => {
  const storage = new MemoryStorage();
  const [a, b] = [v2[0]!.relay as string, v2[1]!.relay as string];
  const url = 'wss://relay.example/brep?access_token=secret';
  assert.equal(addressOf(url), 'wss://relay.example/brep');
  assert.equal(await expectedKey(storage, url), undefined);
  assert.equal(hex((await expectedKey(storage, url, b))!), b);
  await rememberKey(storage, url, a);
  await rememberKey(storage, url, a);
  await assert.rejects(rememberKey(storage, url, b), { code: 'key-mismatch' });
  assert.equal(hex((await expectedKey(storage, 'wss://relay.example/brep'))!), a);
  assert.equal(await expectedKey(storage, 'wss://relay.example/other'), undefined);
});
