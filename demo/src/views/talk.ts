// The talk with one contact.

import { fingerprint, type Key } from '../../../sdk/js/src/index.js';
import type { App } from '../app.js';
import type { Entry } from '../book.js';
import { announce, button, coalesced, copyButton, h } from '../dom.js';
import { icon } from '../icons.js';
import { messageOf, shortKey, size, time } from '../text.js';
import { avatar, nameOf } from './chats.js';

const words: Record<Entry['progress'], string> = {
  sending: 'sealing…', queued: 'waiting for the relay…', written: 'sent', stored: '✓ kept by the relay', handed: '✓ delivered',
  read: '✓✓ received', received: '', offered: 'is offered to you', running: 'under way', done: 'whole', failed: 'failed',
};

export class TalkView {
  readonly element: HTMLElement;
  private readonly rows = new Map<string, Row>();
  private readonly list = h('ol');
  private readonly scroll = h('div', { class: 'messages', role: 'log', 'aria-label': 'Messages', tabindex: 0 }, this.list);
  private readonly head = h('div', { class: 'talk-head' });
  private readonly text: HTMLTextAreaElement;
  private readonly asJSON: HTMLInputElement;
  private readonly problem = h('p', { class: 'problem', role: 'alert' });
  private readonly unwatch: () => void;

  constructor(private readonly app: App, readonly who: Key) {
    this.text = h('textarea', { id: 'say', rows: 1, 'aria-label': 'Message', placeholder: 'Message', keydown: (e: KeyboardEvent) => this.key(e) });
    this.asJSON = h('input', { type: 'checkbox', id: 'as-json' });
    const picker = h('input', { type: 'file', id: 'pick', class: 'unseen', multiple: true, change: () => {
      this.sendFiles(picker.files);
      picker.value = '';
    } });
    const form = h('form', { class: 'composer', submit: (e: Event) => this.say(e) },
      this.problem,
      h('div', { class: 'composer-row' },
        picker, h('label', { for: 'pick', class: 'button quiet', title: 'Send files' }, icon('clip'), h('span', { class: 'unseen' }, 'Send files')),
        this.text,
        h('button', { class: 'primary' }, 'Send')),
      h('p', { class: 'small muted composer-row' },
        this.asJSON, h('label', { for: 'as-json' }, 'as JSON'), h('span', { class: 'grow right wide-only' }, 'Files may be dropped anywhere here')),
    );
    this.element = h('section', {
      class: 'talk card', 'aria-label': 'Talk',
      dragover: (e: DragEvent) => this.drag(e, true), dragleave: (e: DragEvent) => this.drag(e, false), drop: (e: DragEvent) => this.drop(e),
    }, this.head, this.scroll, form);
    const redraw = coalesced(() => this.draw());
    this.unwatch = app.watch({ talk: (key) => key === who && redraw() });
    this.draw();
  }

  /** The talk is to be seen. */
  shown(): void {
    void this.app.book.seen(this.who);
    this.toEnd();
    if (matchMedia('(hover: hover)').matches) this.text.focus();
  }

  close(): void {
    this.unwatch();
    for (const row of this.rows.values()) row.close();
  }

  private draw(): void {
    const { book } = this.app;
    this.drawHead();
    const entries = book.talk(this.who);
    const { scrollHeight, scrollTop, clientHeight } = this.scroll;
    const atEnd = scrollHeight - scrollTop - clientHeight < 60;
    const kept = new Set<Row>();
    // An entry that we send gets another id once the relay is to know it; its place stays.
    entries.forEach((e, i) => {
      let row = this.rows.get(e.id) ?? [...this.rows.values()].find((r) => r.entry === e);
      if (row === undefined) {
        row = new Row(this.app, e);
        this.list.insertBefore(row.element, this.list.children[i] ?? null);
      }
      this.rows.set(e.id, row);
      row.draw(e);
      kept.add(row);
    });
    for (const [id, row] of this.rows) {
      if (kept.has(row) && row.entry.id === id) continue;
      this.rows.delete(id);
      if (kept.has(row)) continue;
      row.close();
      row.element.remove();
    }
    if (atEnd) this.toEnd();
    if (this.element.isConnected && document.visibilityState === 'visible') void book.seen(this.who);
  }

  private drawHead(): void {
    const c = this.app.book.get(this.who) ?? { key: this.who, name: '', known: false, unread: 0, last: 0 };
    const state = `${c.name}/${c.known}`;
    if (this.head.dataset.state === state) return;
    this.head.dataset.state = state;
    const check = h('details', { class: 'grow-row small' },
      h('summary', {}, 'Check the key'),
      h('p', {}, 'Six words that stand for it: ', h('strong', { class: 'words' }, '…')),
      h('p', { class: 'mono' }, this.who, ' ', copyButton('key', () => this.who)),
    );
    void fingerprint(this.who).then((w) => (check.querySelector('.words')!.textContent = w));
    this.head.replaceChildren(
      h('a', { href: '#/chats', class: 'button quiet back', 'aria-label': 'Back to the list' }, '‹'),
      avatar(c), h('h2', { class: 'grow clip' }, nameOf(c)),
      c.known
        ? button('Remove', () => this.remove(), { class: 'quiet' })
        : h('span', {}, button('Add', () => this.app.book.add(this.who, ''), { class: 'primary' }), ' ', button('Block', () => this.block(), { class: 'quiet' })),
      check,
    );
  }

  private async remove(): Promise<void> {
    if (!confirm('Remove this contact and all that was said?')) return;
    this.app.chat.endAll(this.who);
    await this.app.book.remove(this.who);
    location.hash = '#/chats';
  }

  private async block(): Promise<void> {
    if (this.app.link !== 'connected') this.problem.textContent = 'There is no connection: the relay is asked once there is one.';
    try {
      await this.app.client.block(this.who);
      this.app.chat.endAll(this.who);
      await this.app.book.remove(this.who);
      this.app.log.add(`blocked ${shortKey(this.who)}`);
      location.hash = '#/chats';
    } catch (err) {
      this.problem.textContent = messageOf(err);
    }
  }

  private key(e: KeyboardEvent): void {
    if (e.key !== 'Enter' || e.shiftKey || e.isComposing) return;
    e.preventDefault();
    this.text.form!.requestSubmit();
  }

  private async say(e: Event): Promise<void> {
    e.preventDefault();
    const text = this.text.value.trim();
    if (text === '') return;
    this.text.value = ''; // and not later, when there may be something else
    try {
      await this.app.chat.say(this.who, this.asJSON.checked ? 'json' : 'text', text);
      this.problem.textContent = '';
      this.toEnd();
    } catch (err) {
      this.text.value ||= text;
      this.problem.textContent = err instanceof SyntaxError ? `That is no JSON: ${err.message}` : messageOf(err);
    }
  }

  private drag(e: DragEvent, over: boolean): void {
    if (!e.dataTransfer?.types.includes('Files')) return;
    e.preventDefault();
    this.element.classList.toggle('drop', over);
  }

  private drop(e: DragEvent): void {
    this.drag(e, false);
    this.sendFiles(e.dataTransfer?.files);
  }

  private sendFiles(files: FileList | null | undefined): void {
    for (const f of files ?? []) {
      this.app.chat.sendFile(this.who, f).catch((err: unknown) => (this.problem.textContent = messageOf(err)));
      announce(`${f.name} is offered`);
    }
    this.toEnd();
  }

  private toEnd(): void {
    this.scroll.scrollTop = this.scroll.scrollHeight;
  }
}

/** One message or file. It stays the same element, so that screen readers read it once. */
class Row {
  readonly element: HTMLElement;
  private readonly state = h('span', { class: 'state' });
  private readonly bar = h('progress', { max: 1, value: 0 });
  private readonly actions = h('span', { class: 'actions' });
  private drawn = '';
  private url: string | undefined; // of the file

  constructor(private readonly app: App, public entry: Entry) {
    const { kind, text } = entry;
    const body = kind === 'json' ? h('pre', { tabindex: 0 }, text) : h('p', { class: 'said' }, kind === 'file' && icon('file'), text);
    this.element = h('li', { class: entry.mine ? 'mine' : 'theirs' },
      h('span', { class: 'unseen' }, entry.mine ? 'You: ' : 'Received: '),
      body, kind === 'file' && this.bar, this.actions,
      h('p', { class: 'meta small' }, h('time', { datetime: new Date(entry.at).toISOString() }, time(entry.at)), ' ', this.state),
    );
  }

  draw(e: Entry): void {
    this.entry = e;
    const { progress } = e;
    const amount = e.kind !== 'file' ? '' : progress === 'running' ? `${size(e.done ?? 0)} of ${size(e.size!)}` : size(e.size!);
    this.state.textContent = [amount, words[progress], e.note].filter(Boolean).join(' · ');
    this.state.classList.toggle('bad', progress === 'failed');
    if (e.kind !== 'file') return;
    this.bar.value = e.size! > 0 ? (e.done ?? 0) / e.size! : 1;
    this.bar.hidden = progress !== 'running';
    this.bar.setAttribute('aria-label', `${e.text} transferred`);
    if (progress === this.drawn) return;
    this.drawn = progress;
    this.actions.replaceChildren(...this.actionsOf(e));
  }

  /** Lets go of the file. */
  close(): void {
    if (this.url !== undefined) URL.revokeObjectURL(this.url);
    this.url = undefined;
  }

  private actionsOf(e: Entry): HTMLElement[] {
    const answer = (label: string, accept: boolean, how: string) =>
      button(label, () => this.app.chat.answer(e.id, accept), { class: how, 'aria-label': `${label} ${e.text}` });
    if (e.progress === 'offered') return [answer('Accept', true, 'primary'), answer('Refuse', false, 'quiet')];
    if (e.mine && e.progress === 'running') return [answer('Cancel', false, 'quiet')];
    if (e.mine || e.progress !== 'done') return [];
    const blob = this.app.book.files.get(e.id);
    if (blob === undefined) return [h('span', { class: 'small muted' }, 'It is not kept: files are until the page is closed, and those of strangers never.')];
    const type = imageType(e.text);
    this.close();
    const url = (this.url = URL.createObjectURL(type === undefined ? blob : new Blob([blob], { type })));
    return [
      ...(type === undefined ? [] : [h('img', { src: url, alt: e.text, class: 'preview' })]),
      h('a', { href: url, download: e.text, class: 'button primary' }, 'Save', h('span', { class: 'unseen' }, ` ${e.text}`)),
    ];
  }
}

/** Returns the type of images that are shown: of formats without scripts. */
function imageType(name: string): string | undefined {
  const end = /\.(png|jpe?g|gif|webp)$/i.exec(name)?.[1]!.toLowerCase();
  return end && `image/${end === 'jpg' ? 'jpeg' : end}`;
}
