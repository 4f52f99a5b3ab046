import 'fake-indexeddb/auto';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { utf8 } from '../src/bytes.js';
import {
  Identity, IndexedDBStorage, loadIdentity, loadOrCreateIdentity, MemoryStorage, saveIdentity, type Storage, WebStorage,
} from '../src/index.js';

/** What localStorage is like. */
class Area {
  private readonly values = new Map<string, string>();
  get length() {
    return this.values.size;
  }
  key = (i: number) => [...this.values.keys()][i] ?? null;
  getItem = (name: string) => this.values.get(name) ?? null;
  setItem = (name: string, value: string) => void this.values.set(name, value);
  removeItem = (name: string) => void this.values.delete(name);
}

let databases = 0;
const kinds: [string, () => { storage: Storage; again: () => Storage }][] = [
  ['memory', () => {
    const storage = new MemoryStorage();
    return { storage, again: () => storage };
  }],
  ['web storage', () => {
    const area = new Area();
    area.setItem('other', 'somebody else’s');
    return { storage: new WebStorage(area), again: () => new WebStorage(area) };
  }],
  ['IndexedDB', () => {
    const name = `sotto-${databases++}`;
    return { storage: new IndexedDBStorage(name), again: () => new IndexedDBStorage(name) };
  }],
];

for (const [kind, make] of kinds) {
  test(`${kind}: values are kept by name`, async () => {
    const { storage, again } = make();
    assert.equal(await storage.get('a'), undefined);
    await storage.set('a/2', { bytes: utf8('x'), list: [1, 'two', true] });
    await storage.set('a/1', 1);
    await storage.set('b', 'three');
    assert.equal(await storage.add('b', 'four'), false);
    assert.equal(await storage.add('c', 'five'), true);
    const there = again();
    assert.deepEqual(await there.list('a/'), [['a/1', 1], ['a/2', { bytes: utf8('x'), list: [1, 'two', true] }]]);
    assert.equal(await there.get('b'), 'three');
    await there.delete('b');
    await there.delete('b');
    assert.equal(await there.get('b'), undefined);
    assert.deepEqual(await there.list('z'), []);
  });

  test(`${kind}: an identity is made once, and is the same the next time`, async () => {
    const { storage, again } = make();
    assert.equal(await loadIdentity(storage), undefined);
    const [a, b] = await Promise.all([loadOrCreateIdentity(storage), loadOrCreateIdentity(again())]);
    assert.equal(a.key, b.key);
    assert.equal(a.extractable, !storage.holdsKeys);
    const c = (await loadIdentity(again()))!;
    assert.deepEqual(await c.sign(utf8('m')), await a.sign(utf8('m')));
    assert.deepEqual(c.derived.public, a.derived.public);
    assert.deepEqual(await c.cardSecret(5n), await a.cardSecret(5n));
    assert.equal(await saveIdentity(storage, await Identity.generate({ extractable: true })), false);
    assert.equal((await loadIdentity(storage))!.key, a.key);
    const other = await loadOrCreateIdentity(storage, { name: 'second', extractable: true });
    assert.notEqual(other.key, a.key);
    assert.match(await other.export(), /^sotto identity v1\n/);
    if (storage.holdsKeys) await assert.rejects(a.export(), { code: 'identity' });
  });
}

test('a damaged identity is an error, and not another identity', async () => {
  const area = new Area();
  const storage = new WebStorage(area);
  await loadOrCreateIdentity(storage);
  area.setItem('sotto:identity', area.getItem('sotto:identity')!.replace(/seed ../, 'seed 00'));
  await assert.rejects(loadOrCreateIdentity(storage), { code: 'identity' });
});

test('IndexedDB: an open that fails, and a database that another page deletes, are made good the next time', async () => {
  let failures = 1;
  const factory = {
    open(name: string, version: number) {
      if (failures-- <= 0) return indexedDB.open(name, version);
      const request = { error: new Error('busy') } as unknown as IDBOpenDBRequest;
      queueMicrotask(() => request.onerror!(new Event('error')));
      return request;
    },
  } as unknown as IDBFactory;
  const storage = new IndexedDBStorage('reopened', factory);
  await assert.rejects(storage.get('a'), /busy/);
  await storage.set('a', 1);
  assert.equal(await storage.get('a'), 1);
  await new Promise<void>((resolve, reject) => {
    const request = indexedDB.deleteDatabase('reopened');
    request.onsuccess = () => resolve();
    request.onblocked = () => reject(new Error('blocked'));
  });
  assert.equal(await storage.get('a'), undefined);
});
