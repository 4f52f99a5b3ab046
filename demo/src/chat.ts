// What is said with contacts: messages and files on their way, and how far they are.

import type { Body, Client, FileOffer, FileProgress, Key, Letter, Receipt } from '../../sdk/js/src/index.js';
import type { Book, Entry, Progress } from './book.js';
import { messageOf, plainName, size } from './text.js';

/** Larger files are not offered to the user: they are collected in memory. */
const mostBytes = 256 << 20;

/** Longer texts are cut. */
const mostText = 20_000;

/** The order in which a message gets further: what was handed over and is not acknowledged is kept. */
const steps: Progress[] = ['sending', 'queued', 'written', 'handed', 'stored', 'read'];

export class Chat {
  private readonly offers = new Map<string, (accept: boolean) => void>();
  private readonly sending = new Map<string, { to: Key; stop: AbortController }>();
  private readonly early = new Map<string, Receipt>(); // that came before the id was known

  constructor(private readonly book: Book, private readonly client: () => Client) {}

  /** Takes a message of somebody's. It is kept when this returns. */
  async receive(m: Letter): Promise<void> {
    const sealed = m.protection === 'sealed' || m.protection === 'encrypted';
    const entry: Entry = {
      id: idOf(m.from, m.id), mine: false, at: Date.now(), kind: 'text', text: '', progress: 'received',
      ...(!sealed && { note: `not sealed (${m.protection}): relays could read it` }),
    };
    if (m.type === 'raw') {
      entry.text = `${m.bytes.length} bytes that are no text`;
    } else if (m.type === 'file') {
      Object.assign(entry, { kind: 'file', text: plainName(m.name!), size: m.bytes.length, progress: 'done' });
      if (this.book.get(m.from)?.known) this.book.files.set(entry.id, new Blob([m.bytes]));
    } else {
      const text = m.type === 'json' ? pretty(m.text) : m.text;
      Object.assign(entry, { kind: m.type, text: text.slice(0, mostText) });
      if (text.length > mostText) entry.note = `only the beginning of ${size(m.bytes.length)} is shown and kept`;
    }
    await this.book.put(m.from, entry);
  }

  /** Sends a text or a JSON value. */
  async say(to: Key, kind: 'text' | 'json', text: string): Promise<void> {
    const body: Body = kind === 'json' ? { json: JSON.parse(text) as unknown } : text;
    const entry: Entry = {
      id: crypto.randomUUID(), mine: true, at: Date.now(), kind, text: (kind === 'json' ? pretty(text) : text).slice(0, mostText), progress: 'sending',
    };
    await this.book.put(to, entry);
    void this.deliver(to, entry, body);
  }

  private async deliver(to: Key, entry: Entry, body: Body): Promise<void> {
    const local = entry.id;
    try {
      const { id, status } = await this.client().send(to, body, { until: 'queued' });
      await this.book.change(to, local, () => ({ id, progress: status }));
      const early = this.early.get(id);
      if (early !== undefined) await this.receipt(early);
    } catch (err) {
      await this.book.change(to, local, () => ({ progress: 'failed', note: messageOf(err) }));
    }
  }

  async receipt(r: Receipt): Promise<void> {
    if (!this.book.talk(r.to).some((e) => e.id === r.id)) {
      this.early.set(r.id, r);
      if (this.early.size > 256) this.early.delete(this.early.keys().next().value!);
      return;
    }
    this.early.delete(r.id);
    await this.book.change(r.to, r.id, (e) => (steps.indexOf(r.status) > steps.indexOf(e.progress) ? { progress: r.status } : {}));
  }

  async refused(r: Receipt & { error: Error }): Promise<void> {
    await this.book.change(r.to, r.id, () => ({ progress: 'failed', note: r.error.message }));
  }

  /** Offers a file, and sends it once it is accepted. */
  async sendFile(to: Key, file: File): Promise<void> {
    const id = crypto.randomUUID();
    const stop = new AbortController();
    this.sending.set(id, { to, stop });
    await this.book.put(to, {
      id, mine: true, at: Date.now(), kind: 'file', text: plainName(file.name), size: file.size, done: 0, progress: 'running',
    });
    try {
      await this.client().sendFile(to, file, {
        signal: stop.signal,
        onProgress: (done) => void this.book.change(to, id, () => ({ done }), false),
      });
      await this.book.change(to, id, () => ({ done: file.size, progress: 'read' }));
    } catch (err) {
      await this.book.change(to, id, () => ({ progress: 'failed', note: stop.signal.aborted ? 'cancelled' : messageOf(err) }));
    } finally {
      this.sending.delete(id);
    }
  }

  /** Asks the user about a file. Strangers are refused unasked. */
  async offered(o: FileOffer): Promise<boolean> {
    if (!this.book.get(o.from)?.known || o.size > mostBytes) return false;
    const answer = new Promise<boolean>((resolve) => this.offers.set(idOf(o.from, o.transfer), resolve));
    await this.book.put(o.from, {
      id: idOf(o.from, o.transfer), mine: false, at: Date.now(), kind: 'file', text: plainName(o.name), size: o.size, done: 0, progress: 'offered',
    });
    return answer;
  }

  async file(p: FileProgress): Promise<void> {
    const id = idOf(p.from, p.transfer);
    if (p.blob !== undefined && this.book.talk(p.from).some((e) => e.id === id)) this.book.files.set(id, p.blob);
    const ended = p.whole || p.error !== undefined;
    if (ended) this.offers.delete(id);
    await this.book.change(p.from, id, () => ({
      done: p.done, progress: p.whole ? 'done' : p.error ? 'failed' : 'running', ...(p.error && { note: p.error.message }),
    }), ended);
  }

  /** Accepts an offer, or refuses it; or gives up a file that we send. */
  answer(id: string, accept: boolean): void {
    this.offers.get(id)?.(accept);
    this.offers.delete(id);
    if (!accept) this.sending.get(id)?.stop.abort();
  }

  /** Refuses what a contact offers, and gives up what is on its way there: nobody could do so later. */
  endAll(who: Key): void {
    for (const id of this.offers.keys()) if (id.startsWith(`${who}/`)) this.answer(id, false);
    for (const { to, stop } of this.sending.values()) if (to === who) stop.abort();
  }
}

function idOf(from: Key, id: string): string {
  return `${from}/${id}`;
}

function pretty(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}
