// Contacts, and what was said with each. It is kept in the browser, and nowhere else.

import type { Key, Status, Storage } from '../../sdk/js/src/index.js';

export interface Contact {
  key: Key;
  name: string; // empty: none was given
  /** We have added them. Who has only written to us is a stranger. */
  known: boolean;
  unread: number;
  last: number; // when something was said, ms since 1970
}

/** How far a message or file has come. */
export type Progress = 'sending' | Status | 'received' | 'offered' | 'running' | 'done' | 'failed';

export interface Entry {
  /** Of what has come in, with the sender's key before it: whoever sends may choose any. */
  id: string;
  mine: boolean;
  at: number; // ms since 1970
  kind: 'text' | 'json' | 'file';
  text: string; // of a file: its name
  size?: number; // of a file
  done?: number; // likewise: how much of it has come
  progress: Progress;
  /** What is to be said about it: an error, or that it was not sealed. */
  note?: string;
}

const mostEntries = { contact: 300, stranger: 20 };
const mostContacts = 500;

export class Book {
  private readonly contacts = new Map<Key, Contact>();
  private readonly talks = new Map<Key, Entry[]>();
  /** What was received as a file, by the entry, until the page ends. */
  readonly files = new Map<string, Blob>();
  private closed = false;

  /** onChange is told whose talk or entry in the list of contacts is another. */
  constructor(private readonly storage: Storage, private readonly self: Key, private readonly onChange: (who: Key) => void) {}

  async load(): Promise<void> {
    for (const [, value] of await this.storage.list(this.place('contact', ''))) {
      const c = value as Contact;
      this.contacts.set(c.key, c);
      const kept = (await this.storage.get(this.place('talk', c.key))) as Entry[] | undefined;
      this.talks.set(c.key, (kept ?? []).map(interrupted));
    }
  }

  /** Keeps nothing more, and takes nothing: another page does from now on, and has read what was kept. */
  close(): void {
    this.closed = true;
  }

  /** Those we have added or heard of, the latest first. */
  list(): Contact[] {
    return [...this.contacts.values()].sort((a, b) => b.last - a.last);
  }

  get(key: Key): Contact | undefined {
    return this.contacts.get(key);
  }

  talk(key: Key): Entry[] {
    return this.talks.get(key) ?? [];
  }

  /** Says whether there is a place for somebody: strangers make room, contacts don't. */
  hasPlaceFor(key: Key): boolean {
    return this.contacts.has(key) || this.contacts.size < mostContacts || this.stranger !== undefined;
  }

  async add(key: Key, name: string): Promise<void> {
    const c = this.ensure(key);
    c.known = true;
    if (name !== '') c.name = name;
    await this.saveContact(c);
  }

  async remove(key: Key): Promise<void> {
    this.contacts.delete(key);
    this.talks.delete(key);
    for (const id of this.files.keys()) if (id.startsWith(`${key}/`)) this.files.delete(id);
    await this.storage.delete(this.place('contact', key));
    await this.storage.delete(this.place('talk', key));
    this.onChange(key);
  }

  async seen(key: Key): Promise<void> {
    const c = this.contacts.get(key);
    if (!c?.unread) return;
    c.unread = 0;
    await this.saveContact(c);
  }

  /** Sets an entry of a talk, or changes the one that has its id. */
  async put(key: Key, e: Entry): Promise<void> {
    if (this.closed) throw new Error('another tab has taken over');
    const c = this.ensure(key);
    const talk = this.talks.get(key)!;
    const i = talk.findIndex((t) => t.id === e.id);
    if (i >= 0) {
      talk[i] = e;
    } else {
      talk.push(e);
      const old = talk.splice(0, talk.length - mostEntries[c.known ? 'contact' : 'stranger']);
      for (const { id } of old) this.files.delete(id);
      c.last = e.at;
      if (!e.mine) c.unread++;
      await this.saveContact(c);
    }
    await this.saveTalk(key);
  }

  /** Changes an entry, if it is there. */
  async change(key: Key, id: string, f: (e: Entry) => Partial<Entry>, keep = true): Promise<void> {
    const e = this.talks.get(key)?.find((t) => t.id === id);
    if (e === undefined) return;
    Object.assign(e, f(e));
    if (keep) await this.saveTalk(key);
    else this.onChange(key);
  }

  private ensure(key: Key): Contact {
    let c = this.contacts.get(key);
    if (c === undefined) {
      if (this.contacts.size >= mostContacts) this.makeRoom();
      c = { key, name: '', known: false, unread: 0, last: Date.now() };
      this.contacts.set(key, c);
      this.talks.set(key, []);
    }
    return c;
  }

  /** The one of whom nothing was heard for longest. */
  private get stranger(): Contact | undefined {
    return this.list().findLast((c) => !c.known);
  }

  private makeRoom(): void {
    const { stranger } = this;
    if (stranger === undefined) throw new Error('there are too many contacts');
    void this.remove(stranger.key);
  }

  private async saveContact(c: Contact): Promise<void> {
    this.onChange(c.key);
    if (!this.closed) await this.storage.set(this.place('contact', c.key), c);
  }

  private async saveTalk(key: Key): Promise<void> {
    this.onChange(key);
    if (!this.closed) await this.storage.set(this.place('talk', key), this.talks.get(key));
  }

  private place(what: string, key: string): string {
    return `demo/${what}/${this.self}/${key}`;
  }
}

/** What was going on when the page ended does not go on. */
function interrupted(e: Entry): Entry {
  if (!['sending', 'offered', 'running'].includes(e.progress)) return e;
  return { ...e, progress: 'failed', note: 'interrupted' };
}
