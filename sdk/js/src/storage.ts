// Where a client keeps what has to survive it.

import { base64, fromBase64 } from './bytes.js';
import { Identity, type IdentityKeys } from './crypto/identity.js';

/**
 * A place for values by name: strings, numbers, booleans, Uint8Arrays, and arrays and
 * plain objects of those; CryptoKeys too where `holdsKeys` is true. Values are copied.
 * What has to be kept secret is in there: nobody else should be able to read it.
 */
export interface Storage {
  readonly holdsKeys: boolean;
  /** Whether values survive the page or program. */
  readonly persistent: boolean;
  /** Returns the value, or undefined if there is none. */
  get(name: string): Promise<unknown>;
  set(name: string, value: unknown): Promise<void>;
  /** Sets a value unless there is one. False: there is, and it stays. */
  add(name: string, value: unknown): Promise<boolean>;
  delete(name: string): Promise<void>;
  /** Returns what has a name that begins with prefix, in the order of names. */
  list(prefix: string): Promise<[name: string, value: unknown][]>;
}

/** Keeps values until the page or program ends. */
export class MemoryStorage implements Storage {
  readonly holdsKeys = true;
  readonly persistent: boolean = false;
  private readonly values = new Map<string, unknown>();

  async get(name: string): Promise<unknown> {
    return this.values.get(name);
  }

  async set(name: string, value: unknown): Promise<void> {
    this.values.set(name, value);
  }

  async add(name: string, value: unknown): Promise<boolean> {
    if (this.values.has(name)) return false;
    this.values.set(name, value);
    return true;
  }

  async delete(name: string): Promise<void> {
    this.values.delete(name);
  }

  async list(prefix: string): Promise<[string, unknown][]> {
    return [...this.values].filter(([name]) => name.startsWith(prefix)).sort(([a], [b]) => (a < b ? -1 : 1));
  }
}

/** The part of the Web Storage API that WebStorage uses. */
export type WebStorageArea = Pick<globalThis.Storage, 'getItem' | 'setItem' | 'removeItem' | 'key' | 'length'>;

/**
 * Keeps values in localStorage or the like, as text. Every script of the origin can
 * read them, secret keys too; IndexedDBStorage is better where there is one.
 */
export class WebStorage implements Storage {
  readonly holdsKeys = false;
  readonly persistent = true;

  /** Names begin with prefix there. */
  constructor(private readonly area: WebStorageArea = localStorage, private readonly prefix = 'sotto:') {}

  async get(name: string): Promise<unknown> {
    const text = this.area.getItem(this.prefix + name);
    return text === null ? undefined : fromText(text);
  }

  async set(name: string, value: unknown): Promise<void> {
    this.area.setItem(this.prefix + name, toText(value));
  }

  async add(name: string, value: unknown): Promise<boolean> {
    if (this.area.getItem(this.prefix + name) !== null) return false;
    this.area.setItem(this.prefix + name, toText(value));
    return true;
  }

  async delete(name: string): Promise<void> {
    this.area.removeItem(this.prefix + name);
  }

  async list(prefix: string): Promise<[string, unknown][]> {
    const found: [string, unknown][] = [];
    for (let i = 0; i < this.area.length; i++) {
      const name = this.area.key(i)!;
      if (!name.startsWith(this.prefix + prefix)) continue;
      try {
        found.push([name.slice(this.prefix.length), fromText(this.area.getItem(name)!)]);
      } catch {
        continue; // somebody else's, or damaged: the others serve
      }
    }
    return found.sort(([a], [b]) => (a < b ? -1 : 1));
  }
}

/** JSON, in which bytes are {"$bytes": base64}. */
function toText(value: unknown): string {
  return JSON.stringify(value, (_, v) => (v instanceof Uint8Array ? { $bytes: base64(v) } : v));
}

function fromText(text: string): unknown {
  return JSON.parse(text, (_, v) => (typeof v?.$bytes === 'string' ? fromBase64(v.$bytes) : v));
}

/** Keeps values in IndexedDB, CryptoKeys that nobody can read among them. */
export class IndexedDBStorage implements Storage {
  readonly holdsKeys = true;
  readonly persistent = true;
  private opened: Promise<IDBDatabase> | undefined;

  constructor(private readonly name = 'sotto', private readonly factory: IDBFactory = indexedDB) {}

  get(name: string): Promise<unknown> {
    return this.use('readonly', (store) => store.get(name));
  }

  async set(name: string, value: unknown): Promise<void> {
    await this.use('readwrite', (store) => store.put(value, name));
  }

  async add(name: string, value: unknown): Promise<boolean> {
    try {
      await this.use('readwrite', (store) => store.add(value, name));
      return true;
    } catch (err) {
      if ((err as DOMException | null)?.name === 'ConstraintError') return false;
      throw err;
    }
  }

  async delete(name: string): Promise<void> {
    await this.use('readwrite', (store) => store.delete(name));
  }

  async list(prefix: string): Promise<[string, unknown][]> {
    // Both in one transaction, so that they belong together.
    const range = IDBKeyRange.bound(prefix, prefix + '\uffff');
    let names: IDBRequest<IDBValidKey[]>;
    const values = await this.use('readonly', (store) => {
      names = store.getAllKeys(range);
      return store.getAll(range);
    });
    return names!.result.map((name, i) => [name as string, values[i]]);
  }

  /** Runs one transaction, and returns the result of its request once it is done. */
  private async use<T>(mode: IDBTransactionMode, ask: (store: IDBObjectStore) => IDBRequest<T>): Promise<T> {
    const db = await (this.opened ??= this.open().catch((err: unknown) => {
      this.opened = undefined; // it may go better the next time
      throw err;
    }));
    return new Promise((resolve, reject) => {
      const tx = db.transaction('values', mode);
      const request = ask(tx.objectStore('values'));
      tx.oncomplete = () => resolve(request.result);
      tx.onabort = () => reject(tx.error ?? request.error);
    });
  }

  private open(): Promise<IDBDatabase> {
    return new Promise((resolve, reject) => {
      const request = this.factory.open(this.name, 1);
      request.onupgradeneeded = () => request.result.createObjectStore('values');
      request.onsuccess = () => {
        const db = request.result;
        db.onclose = () => (this.opened = undefined); // by the browser
        db.onversionchange = () => { // another page wants to delete it
          db.close();
          this.opened = undefined;
        };
        resolve(db);
      };
      request.onerror = () => reject(request.error);
    });
  }
}

/** Keeps an identity under a name, unless there is one. False: there is, and it stays. */
export async function saveIdentity(storage: Storage, identity: Identity, name = 'identity'): Promise<boolean> {
  return storage.add(name, storage.holdsKeys ? identity.toKeys() : await identity.export());
}

/** Returns the identity kept under a name; undefined if there is none. */
export async function loadIdentity(storage: Storage, name = 'identity'): Promise<Identity | undefined> {
  const kept = await storage.get(name);
  if (kept === undefined) return undefined;
  return typeof kept === 'string' ? Identity.import(kept, { extractable: true }) : Identity.fromKeys(kept as IdentityKeys);
}

/**
 * Returns the identity kept under a name, or makes one and keeps it. Pages that do this
 * at the same time end up with the same. A new one is extractable if asked for, or if
 * the storage can keep no other.
 */
export async function loadOrCreateIdentity(
  storage: Storage, options: { name?: string; extractable?: boolean } = {},
): Promise<Identity> {
  const there = await loadIdentity(storage, options.name);
  if (there !== undefined) return there;
  const made = await Identity.generate({ extractable: options.extractable === true || !storage.holdsKeys });
  if (await saveIdentity(storage, made, options.name)) return made;
  return (await loadIdentity(storage, options.name))!;
}
