// Contacts and talks, without a browser.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { scratch } from './kit.mjs';

const dir = scratch();
await build({ entryPoints: [fileURLToPath(new URL('../src/book.ts', import.meta.url))], outfile: join(dir, 'book.mjs'), format: 'esm' });
const { Book } = await import(join(dir, 'book.mjs'));

test('strangers make room, contacts do not', async () => {
  const storage = { get: async () => undefined, set: async () => {}, delete: async () => {}, list: async () => [] };
  const book = new Book(storage, 'me', () => {});
  const message = (id) => ({ id, mine: false, at: 1, kind: 'text', text: 'hello', progress: 'received' });
  for (let n = 0; n < 499; n++) await book.add(`contact ${n}`, '');
  assert.equal(book.hasPlaceFor('eve'), true);
  await book.put('eve', message('1'));
  assert.equal(book.hasPlaceFor('mallory'), true);
  await book.put('mallory', message('2'));
  assert.equal(book.get('eve'), undefined);
  await book.add('mallory', 'Mallory');
  assert.equal(book.list().length, 500);
  assert.equal(book.hasPlaceFor('eve'), false);
  assert.equal(book.hasPlaceFor('contact 3'), true);
  await assert.rejects(book.add('eve', ''), /too many contacts/);
  await book.remove('contact 3');
  assert.equal(book.hasPlaceFor('eve'), true);
});

test('a page that another one has taken over from keeps nothing and takes nothing', async () => {
  const kept = new Map();
  const storage = {
    get: async (name) => structuredClone(kept.get(name)), set: async (name, v) => void kept.set(name, structuredClone(v)),
    list: async (prefix) => [...kept].filter(([name]) => name.startsWith(prefix)), delete: async (name) => void kept.delete(name),
  };
  const message = (id) => ({ id, mine: false, at: 1, kind: 'text', text: id, progress: 'received' });
  const old = new Book(storage, 'me', () => {});
  await old.put('ann', message('before'));
  const page = new Book(storage, 'me', () => {});
  old.close();
  await page.load();
  await page.put('ann', message('after'));
  await old.change('ann', 'before', () => ({ progress: 'failed' })); // as its client ends
  await assert.rejects(old.put('ann', message('late')), /another tab/); // so the relay keeps it
  await old.seen('ann');
  const next = new Book(storage, 'me', () => {});
  await next.load();
  assert.deepEqual(next.talk('ann').map((e) => [e.id, e.progress]), [['before', 'received'], ['after', 'received']]);
  assert.equal(next.get('ann').unread, 2);
});

test('a file goes with the message that it came with', async () => {
  const storage = { get: async () => undefined, set: async () => {}, delete: async () => {}, list: async () => [] };
  const book = new Book(storage, 'me', () => {});
  await book.add('ann', 'Ann');
  for (let n = 0; n <= 300; n++) {
    book.files.set(`ann/${n}`, new Blob(['x']));
    await book.put('ann', { id: `ann/${n}`, mine: false, at: 1, kind: 'file', text: 'x', size: 1, progress: 'done' });
  }
  assert.deepEqual([book.talk('ann').length, book.files.size, book.files.has('ann/0')], [300, 300, false]);
});
