import assert from 'node:assert/strict';
import { test } from 'node:test';
import { base64url } from '../src/bytes.js';
import { formatPairing, parsePairing } from '../src/index.js';
import { bytes, cases } from './vectors.js';

const [key, relay] = cases('crypto/testdata/ed25519_to_x25519.json').map((c) => c.ed25519_public as string) as [string, string];
const k = base64url(bytes(key));
const r = base64url(bytes(relay));

test('pairing strings are written in one way, and read back', () => {
  for (const [p, text] of [
    [{ key, url: 'wss://relay.example' }, `sotto://${k}@relay.example?tls=1`],
    [{ key, url: 'ws://127.0.0.1:8080/brep', relay }, `sotto://${k}@127.0.0.1:8080/brep?relay=${r}&tls=0`],
    [{ key, url: 'wss://[2001:db8::1]:443/', relay, card: 18446744073709551615n }, `sotto://${k}@[2001:db8::1]:443/?relay=${r}&card=18446744073709551615&tls=1`],
    [{ key, url: 'wss://a/b/c', card: 7n }, `sotto://${k}@a/b/c?card=7&tls=1`],
  ] as const) {
    assert.equal(formatPairing(p), text);
    assert.deepEqual(parsePairing(text), p);
  }
});

test('anything else is refused', () => {
  const weak = base64url(bytes('01' + '00'.repeat(31)));
  for (const bad of [
    '', 'sotto://', `sotto://${k}@?tls=1`, `sotto://${k}@a`, `sotto://${k}@a?tls=2`, `sotto://${k}@a?tls=1&`, `Sotto://${k}@a?tls=1`,
    `sotto://${k}@a?card=7&relay=${r}&tls=1`, `sotto://${k}@a?card=07&tls=1`, `sotto://${k}@a?card=0&tls=1`,
    `sotto://${k}@a?card=18446744073709551616&tls=1`, `sotto://${k}@A?tls=1`, `sotto://${k}@a:0?tls=1`, `sotto://${k}@a:65536?tls=1`,
    `sotto://${k}@a:?tls=1`, `sotto://${k}@a/../b?tls=1`, `sotto://${k}@a/%41?tls=1`, `sotto://${k}@[::1?tls=1`, `sotto://${k}@[::01]?tls=1`,
    `sotto://${k}@a?tls=1#x`, `sotto://${k}x@a?tls=1`, `sotto://${k.slice(1)}@a?tls=1`, `sotto://${k}@a?x=1&tls=1`, `sotto://u@${k}@a?tls=1`,
    `sotto://${k.slice(0, 42)}B@a?tls=1`, `sotto://${k}@${'a'.repeat(1024)}?tls=1`, `sotto://${k}@ü?tls=1`,
  ]) {
    assert.throws(() => parsePairing(bad), (e: { code: string }) => ['malformed', 'weak-key'].includes(e.code), bad);
  }
  assert.throws(() => parsePairing(`sotto://${weak}@a?tls=1`), { code: 'weak-key' });
  assert.throws(() => formatPairing({ key, url: 'https://a' }), { code: 'malformed' });
  assert.throws(() => formatPairing({ key, url: 'wss://a?access_token=x' }), { code: 'malformed' });
});
