// The application without its pages: one client, and what belongs to it.

import { Client, IndexedDBStorage, type Key, loadOrCreateIdentity, type Identity, type RelayInfo } from '../../sdk/js/src/index.js';
import { Book } from './book.js';
import { Chat } from './chat.js';
import { isPlay, type Play, type Sent, Tables } from './games/table.js';
import { Log } from './log.js';
import { messageOf, shortKey } from './text.js';

export type Link = 'connecting' | 'connected' | 'offline' | 'ended';

/** What pages want to know. */
export interface Watcher {
  link(): void;
  talk(who: Key): void;
  servers(): void;
}

export class App {
  client!: Client;
  link: Link = 'connecting';
  /** Why there is no connection. */
  why: Error | undefined;
  relay: (RelayInfo & { url: string }) | undefined;
  readonly log = new Log();
  readonly book: Book;
  readonly chat: Chat;
  readonly tables: Tables;
  private readonly watchers = new Set<Partial<Watcher>>();

  private constructor(
    /** Of the relay that has served this page. */
    readonly url: string, private readonly storage: IndexedDBStorage, readonly identity: Identity,
  ) {
    const { key } = identity;
    this.book = new Book(storage, key, (who) => this.tell('talk', who));
    this.chat = new Chat(this.book, () => this.client);
    this.tables = new Tables({
      self: key,
      find: (game, signal) => this.client.findMatch(`sotto-demo/${game}`, signal),
      send: (to, play, fleeting) => this.sendPlay(to, play, fleeting),
    });
  }

  static async open(url: string): Promise<App> {
    const storage = new IndexedDBStorage();
    const app = new App(url, storage, await loadOrCreateIdentity(storage));
    await app.book.load();
    app.connect();
    return app;
  }

  get key(): Key {
    return this.identity.key;
  }

  /** Tells a page what has changed, until the returned function is called. */
  watch(w: Partial<Watcher>): () => void {
    this.watchers.add(w);
    return () => void this.watchers.delete(w);
  }

  /** Begins with a client, which goes on until it is refused for good. */
  connect(): void {
    const { storage, identity, url, log } = this;
    const client = (this.client = new Client({
      url, identity, storage, backoff: { min: 300, max: 5000 }, acceptFile: (o) => this.chat.offered(o),
    }));
    this.setLink('connecting');
    client.on('connected', (relay) => {
      this.relay = relay;
      log.add(`connected to ${relay.url}${relay.firstContact ? ', for the first time' : ''}`);
      this.setLink('connected');
    });
    client.on('disconnected', ({ error, retryIn }) => {
      if (client !== this.client) return;
      log.add(`${error.message}${retryIn === undefined ? '' : `; next attempt in ${(retryIn / 1000).toFixed(1)} s`}`, true);
      this.setLink(retryIn === undefined ? 'ended' : 'offline', error);
    });
    client.on('message', async (m) => {
      const play = m.type === 'json' && m.protection === 'sealed' ? playOf(m.text) : undefined;
      if (play !== undefined) return this.tables.take(m.from, play);
      const what = `${m.protection} ${m.type} from ${shortKey(m.from)}, ${m.bytes.length} bytes`;
      if (!this.book.hasPlaceFor(m.from)) return log.add(`${what}, who is a stranger: there are too many contacts to keep it`, true);
      log.add(what);
      await this.chat.receive(m);
    });
    client.on('receipt', (r) => this.chat.receipt(r));
    client.on('refused', (r) => this.chat.refused(r));
    client.on('file', (p) => this.chat.file(p));
    client.on('gap', ({ room, topic }) => log.add(`something may be missing in ${room ?? topic}`));
    client.on('insecure', () => log.add('the connection to the relay is not encrypted; messages are, all the same', true));
    client.on('error', (err) => log.add(messageOf(err), true));
    client.on('serversChanged', () => this.tell('servers'));
    client.connect().catch(() => undefined); // is told as disconnected
  }

  /** Ends the client, as another page takes over. */
  async close(): Promise<void> {
    this.book.close();
    await this.client.close();
  }

  /** Trusts whatever key the relay has now: after a relay was set up anew. */
  async trustAnew(): Promise<void> {
    const { protocol, host, pathname } = new URL(this.url);
    await this.storage.delete(`relay/${protocol}//${host}${pathname}`);
    this.connect();
  }

  private async sendPlay(to: Key, play: Play, fleeting: boolean): Promise<Sent> {
    try {
      await this.client.send(to, { json: play }, fleeting ? { ephemeral: true } : {});
      return 'taken';
    } catch (err) {
      if (!fleeting) this.log.add(`a move was not sent: ${messageOf(err)}`, true);
      return (err as { code?: string }).code === 'not-here' ? 'away' : 'failed';
    }
  }

  private setLink(link: Link, why?: Error): void {
    this.link = link;
    this.why = why;
    this.tell('link');
  }

  private tell<K extends keyof Watcher>(what: K, ...args: Parameters<Watcher[K]>): void {
    for (const w of this.watchers) (w[what] as ((...args: Parameters<Watcher[K]>) => void) | undefined)?.(...args);
  }
}

/** Returns the message of a game in a JSON text, if it is one. */
function playOf(json: string): Play | undefined {
  try {
    const v = JSON.parse(json) as unknown;
    return isPlay(v) ? v : undefined;
  } catch {
    return undefined;
  }
}
