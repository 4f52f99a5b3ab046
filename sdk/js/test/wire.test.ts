import assert from 'node:assert/strict';
import { test } from 'node:test';
import { concat, hex, isZero, u16, u32, utf8 } from '../src/bytes.js';
import { decodeFrame, encodeFrame, newFrame } from '../src/wire/frame.js';
import { decodeServers } from '../src/wire/nodeinfo.js';
import {
  decodeError, decodeGoAway, decodePublication, decodeReceipt, decodeSealed, encodePublication,
} from '../src/wire/payload.js';
import { bytes, cases } from './vectors.js';

const malformed = { code: 'malformed' };

test('frames decode as brep_frames.json says, and encode to the same bytes', () => {
  for (const c of cases('frame/testdata/brep_frames.json')) {
    const b = bytes(c.frame);
    if (!c.valid) {
      assert.throws(() => decodeFrame(b), (e: { code: string }) => ['malformed', 'unsupported-version'].includes(e.code), c.name);
      continue;
    }
    const f = decodeFrame(b);
    assert.equal(f.type, c.type, c.name);
    assert.equal(hex(f.sender), c.sender, c.name);
    assert.equal(hex(f.signature), c.signature, c.name);
    assert.equal(hex(f.payload), c.payload, c.name);
    assert.equal(hex(encodeFrame(f)), c.frame, c.name);
  }
});

test('what decodes encodes to the same bytes, whatever comes in', () => {
  const start = encodeFrame(newFrame(4, { flags: 5, payload: utf8('payload') }));
  for (let i = 0; i < 20_000; i++) {
    const b = start.slice(0, i % 7 === 0 ? Math.floor(Math.random() * start.length) : start.length);
    for (let n = i % 3; n >= 0; n--) b[Math.floor(Math.random() * b.length)] = Math.floor(Math.random() * 256);
    let f;
    try {
      f = decodeFrame(b);
    } catch (e) {
      assert.ok(['malformed', 'unsupported-version'].includes((e as { code: string }).code));
      continue;
    }
    assert.deepEqual(encodeFrame(f), b);
  }
});

test('receipts', () => {
  const id = bytes('01'.repeat(16));
  const status = (n: number, ...rest: Uint8Array[]) => concat(id, Uint8Array.of(n), ...rest);
  assert.deepEqual(decodeReceipt(status(1)), { id, status: 1 });
  assert.deepEqual(decodeReceipt(status(2)), { id, status: 2 });
  const recipient = bytes('02'.repeat(32));
  const signature = bytes('03'.repeat(64));
  assert.deepEqual(decodeReceipt(status(3, recipient, signature)), { id, status: 3, recipient, signature });
  assert.deepEqual(decodeReceipt(status(4, u16(12), utf8('gone'))), { id, status: 4, code: 'not-here', reason: 'gone' });
  assert.deepEqual(decodeReceipt(status(5, u16(900))), { id, status: 5, code: 'code-900', reason: '' });
  for (const bad of [
    id, status(0), status(6), status(1, u16(1)), status(3, recipient), status(3, recipient, signature, u16(0)),
    status(4), status(4, Uint8Array.of(1)), status(5, u16(1), Uint8Array.of(0xff)),
  ]) {
    assert.throws(() => decodeReceipt(bad), malformed, hex(bad));
  }
});

test('errors and goodbyes', () => {
  const id = bytes('01'.repeat(16));
  assert.deepEqual(decodeError(0, concat(u16(18), utf8('elsewhere'))), { code: 'replaced', reason: 'elsewhere' });
  assert.deepEqual(decodeError(1, concat(u16(7), id)), { code: 'rate-limited', reason: '', id });
  for (const [flags, bad] of [
    [0, u16(1).subarray(1)], [1, id], [1, concat(u16(1), new Uint8Array(16))], [0, concat(u16(1), Uint8Array.of(0x80))],
  ] as const) {
    assert.throws(() => decodeError(flags, bad), malformed);
  }
  assert.deepEqual(decodeGoAway(concat(u32(1500), utf8('wss://other'))), { after: 1500, address: 'wss://other' });
  assert.deepEqual(decodeGoAway(u32(0xffffffff)), { after: 0xffffffff, address: '' });
  assert.throws(() => decodeGoAway(u16(1)), malformed);
  assert.throws(() => decodeGoAway(concat(u32(1), Uint8Array.of(0xff))), malformed);
});

test('publications', () => {
  const b = encodePublication('home/küche', utf8('warm'));
  assert.deepEqual(decodePublication(b), { name: 'home/küche', content: utf8('warm') });
  assert.deepEqual(decodePublication(u16(0)), { name: '', content: new Uint8Array(0) });
  for (const bad of [utf8(''), utf8('x'), concat(u16(2), utf8('x')), concat(u16(1), Uint8Array.of(0xff))]) {
    assert.throws(() => decodePublication(bad), malformed);
  }
  assert.throws(() => encodePublication('x'.repeat(65_536), utf8('')), malformed);
});

test('sealed payloads are at least as long as their suite has it', () => {
  for (const [suite, enc] of [[2, 32], [3, 1120], [9, 32]] as const) {
    const b = new Uint8Array(41 + enc + 16);
    b[32] = suite;
    const s = decodeSealed(b);
    assert.equal(s.enc.length, enc);
    assert.ok(isZero(s.ciphertext) && s.ciphertext.length === 16);
    assert.throws(() => decodeSealed(b.subarray(0, -1)), malformed);
  }
  assert.throws(() => decodeSealed(new Uint8Array(32)), malformed);
});

test('lists of servers are used whole or not at all', () => {
  const key = bytes('0a'.repeat(32));
  const entry = concat(key, Uint8Array.of(3), utf8('abc'));
  const list = (count: number, ...rest: Uint8Array[]) => concat(Uint8Array.of(3), u16(count), ...rest);
  assert.deepEqual(decodeServers(list(2, entry, entry)), [
    { key: hex(key), address: 'abc' }, { key: hex(key), address: 'abc' },
  ]);
  assert.deepEqual(decodeServers(list(0)), []);
  assert.deepEqual(decodeServers(concat(Uint8Array.of(4, 2), utf8('ab'))), [{ address: 'ab' }]);
  for (const other of [utf8(''), Uint8Array.of(0), Uint8Array.of(2), Uint8Array.of(6), Uint8Array.of(99)]) {
    assert.equal(decodeServers(other), undefined);
  }
  for (const bad of [
    Uint8Array.of(3), list(1), list(3, entry, entry), list(1, entry, entry), list(1, entry.subarray(1)),
    list(1, key, Uint8Array.of(4), utf8('abc')), list(1, key, Uint8Array.of(1, 0xff)),
    Uint8Array.of(4), Uint8Array.of(4, 2, 97), Uint8Array.of(4, 1, 97, 97),
  ]) {
    assert.throws(() => decodeServers(bad), malformed, hex(bad));
  }
});
