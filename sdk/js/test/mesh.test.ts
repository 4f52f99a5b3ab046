// Relays of different operators: what a client says so that its messages follow it.

import assert from 'node:assert/strict';
import { after, afterEach, mock, test } from 'node:test';
import { attachment, keepAttached } from '../src/attach.js';
import { fromBase64, hex, view } from '../src/bytes.js';
import { Identity, type Letter, SottoError } from '../src/index.js';
import { Requests } from '../src/requests.js';
import { bytes, cases } from './vectors.js';
import { closeClients, freePort, idleClient, newClient, next, startRelay } from './relay.js';

after(closeClients);
afterEach(() => mock.timers.reset());

test('attachments', async () => {
  for (const c of cases('crypto/testdata/attach.json')) {
    const identity = await Identity.fromSeed(bytes(c.client_seed));
    assert.equal(hex(await attachment(identity, c.relay, c.not_after_ms)), c.attachment);
  }
});

const turn = () => new Promise((resolve) => setImmediate(resolve));

/** Requests that note what is said, and when. */
class FakeRequests extends Requests {
  readonly said: number[] = [];
  refusal: SottoError | undefined;
  override async ask(verb: string, fields: Record<string, unknown> = {}): Promise<Record<string, unknown>> {
    assert.equal(verb, 'attach');
    const stmt = fromBase64(fields.stmt as string)!;
    assert.equal(stmt.length, 136);
    assert.equal(Number(view(stmt.subarray(64, 72)).getBigUint64(0)), Date.now() + 3_600_000);
    this.said.push(Date.now());
    if (this.refusal !== undefined) throw this.refusal;
    return {};
  }
}

test('a relay is told again at half time, sooner if it was not ready, and not at all if it knows no mesh', async () => {
  mock.timers.enable({ apis: ['Date', 'setTimeout'], now: 0 });
  const identity = await Identity.generate();
  const relay = (await Identity.generate()).key;
  const requests = new FakeRequests(() => undefined);
  const errors: string[] = [];
  const gone = new AbortController();
  const said = async (n: number) => {
    while (requests.said.length < n) await turn();
    for (let i = 0; i < 10; i++) await turn(); // until it waits
  };
  const wait = async (ms: number) => {
    const n = requests.said.length;
    mock.timers.tick(ms - 1);
    for (let i = 0; i < 10; i++) await turn();
    mock.timers.tick(1);
    await said(n + 1);
  };
  requests.refusal = new SottoError('overloaded', 'the mesh is not up yet', true);
  const done = keepAttached(identity, relay, requests, (e) => errors.push(e.code), gone.signal);
  await said(1);
  for (const seconds of [10, 20]) await wait(seconds * 1000);
  requests.refusal = new SottoError('expired', 'attachment is not of now', true);
  await wait(40_000);
  requests.refusal = undefined;
  await wait(80_000);
  for (let i = 0; i < 2; i++) await wait(1_800_000);
  assert.deepEqual(requests.said.map((ms) => ms / 1000), [0, 10, 30, 70, 150, 1950, 3750]);
  assert.deepEqual(errors, ['expired']);
  gone.abort();
  await done;
  requests.refusal = new SottoError('unknown-verb', '', true);
  await keepAttached(identity, relay, requests, (e) => errors.push(e.code), new AbortController().signal);
  assert.deepEqual(errors, ['expired']);
});

test('mail follows its owner from relay to relay', async () => {
  const ports = [await freePort(), await freePort()];
  const url = (n: number) => `ws://127.0.0.1:${ports[n]}/`;
  const relays = [];
  for (const n of [0, 1]) {
    const args = ['--mesh', 'open', '--mesh-private-addresses', '--advertise', url(n), '--peer', url(1 - n)];
    relays.push(await startRelay(args, ports[n]));
  }
  const [a, b] = relays as [(typeof relays)[0], (typeof relays)[0]];
  try {
    const alice = await newClient(a!);
    const bob = idleClient(b!, { identity: await Identity.generate() });
    await alice.send(bob.key, 'mail', { until: 'stored' });
    const got = next<Letter>((f) => bob.on('message', f));
    await bob.connect();
    const [letter] = await got;
    assert.equal(letter!.text, 'mail');
    assert.equal(letter!.from, alice.key);
  } finally {
    await closeClients();
    await Promise.all(relays.map((r) => r.stop()));
  }
});
