import assert from 'node:assert/strict';
import { afterEach, mock, test } from 'node:test';
import { u32, view } from '../src/bytes.js';
import { SottoError } from '../src/errors.js';
import { MemoryStorage } from '../src/index.js';
import { Outbox, type Pending } from '../src/outbox.js';
import { Pacer } from '../src/pacer.js';
import { type Frame, newFrame, Type } from '../src/wire/frame.js';

afterEach(() => mock.timers.reset());

const never = new AbortController().signal;

function frame(n: number, size = 100): Frame {
  const id = new Uint8Array(16);
  id.set(u32(n), 12);
  return newFrame(Type.sealed, { id, payload: new Uint8Array(size) });
}

const number = (p: Pending) => view(p.frame.id).getUint32(12);

async function take(o: Outbox, n: number): Promise<number[]> {
  const got: number[] = [];
  for (let i = 0; i < n; i++) got.push(number(await o.take(never)));
  return got;
}

test('what an earlier client left goes out before anything newer, also if that is sent first', async () => {
  const storage = new MemoryStorage();
  const first = new Outbox(storage, 'out/', 100, 1 << 20);
  for (let n = 1; n <= 12; n++) await first.add(frame(n), n !== 3);
  first.settle(first.find(frame(2).id)!);
  first.close(new SottoError('closed', 'closed'));
  await assert.rejects(first.add(frame(99), true), { code: 'closed' });
  const second = new Outbox(storage, 'out/', 100, 1 << 20);
  const adding = second.add(frame(13), true);
  await second.load();
  await adding;
  assert.deepEqual(await take(second, 11), [1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
  assert.equal((await storage.list('out/')).length, 11);
});

test('it takes no more than it has room for, and one of any size when it is empty', async () => {
  const o = new Outbox(new MemoryStorage(), 'out/', 3, 1000);
  const big = await o.add(frame(1, 5000), false);
  let more = 0;
  const second = o.add(frame(2), false).then(() => more++);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(more, 0);
  o.settle(big);
  await second;
  await o.add(frame(3), false);
  await o.add(frame(4), false);
  const abort = new AbortController();
  const fifth = o.add(frame(5), false, abort.signal);
  abort.abort();
  await assert.rejects(fifth, { name: 'AbortError' });
  assert.deepEqual(o.size, { messages: 3, bytes: 300 });
});

test('a message that cannot be kept is not sent', async () => {
  const storage = new MemoryStorage();
  storage.set = async () => {
    throw new Error('QuotaExceededError');
  };
  const o = new Outbox(storage, 'out/', 3, 1000);
  await assert.rejects(o.add(frame(1), true), /Quota/);
  await o.add(frame(2), false);
  assert.deepEqual(await take(o, 1), [2]);
});

test('a message is given up after seven days', async () => {
  mock.timers.enable({ apis: ['Date'], now: 1_000_000 });
  const o = new Outbox(new MemoryStorage(), 'out/', 3, 1000);
  const p = await o.add(frame(1), false);
  mock.timers.setTime(1_000_000 + 7 * 24 * 3600 * 1000 - 1);
  o.removeOld();
  assert.equal(p.error, undefined);
  mock.timers.setTime(1_000_000 + 7 * 24 * 3600 * 1000);
  o.removeOld();
  assert.equal((p.error as SottoError | undefined)?.code, 'expired');
  assert.equal(o.size.messages, 0);
});

test('the pace is that of relays', async () => {
  mock.timers.enable({ apis: ['Date', 'setTimeout'], now: 0 });
  const pacer = new Pacer();
  for (let i = 0; i < 128; i++) await pacer.wait(100, never);
  let passed = false;
  const late = pacer.wait(100, never).then(() => (passed = true));
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(passed, false);
  mock.timers.tick(6); // one of 180 a second
  await late;
  const abort = new AbortController();
  const given = pacer.wait(100 << 20, abort.signal);
  abort.abort();
  await assert.rejects(given, { name: 'AbortError' });
});
