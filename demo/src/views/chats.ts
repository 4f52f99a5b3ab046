// The list of contacts, and the talk with one of them.

import { formatPairing, type Key, parsePairing } from '../../../sdk/js/src/index.js';
import type { App } from '../app.js';
import type { Contact } from '../book.js';
import { announce, coalesced, h } from '../dom.js';
import { cutName, hue, messageOf, shortKey, time } from '../text.js';
import { TalkView } from './talk.js';

export class ChatsView {
  readonly title = 'Chats';
  readonly icon = 'chats';
  readonly element: HTMLElement;
  private readonly list = h('ul', { class: 'contacts' });
  private readonly empty = h('p', { class: 'muted' }, 'Nobody yet. Add somebody by a pairing link or a key; yours is on the page “Me”.');
  private readonly side: HTMLElement;
  private readonly place = h('div', { class: 'talk-place' });
  private readonly who: HTMLInputElement;
  private readonly name: HTMLInputElement;
  private readonly problem = h('p', { class: 'problem', role: 'alert' });
  private talk: TalkView | undefined;

  constructor(private readonly app: App) {
    this.who = h('input', { id: 'add-key', required: true, autocomplete: 'off', spellcheck: 'false', 'aria-describedby': 'add-help' });
    this.name = h('input', { id: 'add-name', autocomplete: 'off', maxlength: 40 });
    const form = h('form', { class: 'card stack', submit: (e: Event) => this.add(e) },
      h('h2', {}, 'Add a contact'),
      h('label', { for: 'add-key' }, 'Pairing link or key'), this.who,
      h('label', { for: 'add-name' }, 'Name'), this.name,
      h('p', { id: 'add-help', class: 'muted small' }, 'Then compare the six words of the key with your contact, on the phone, say.'),
      this.problem,
      h('button', { class: 'primary' }, 'Add'),
    );
    this.side = h('div', { class: 'side stack' }, h('h1', {}, 'Chats'), this.empty, this.list, form);
    this.element = h('div', { class: 'chats' }, this.side, this.place);
    const redraw = coalesced(() => this.draw());
    app.watch({ talk: redraw });
    document.addEventListener('visibilitychange', () => {
      if (document.visibilityState === 'visible' && this.talk?.element.isConnected) void app.book.seen(this.talk.who);
    });
    this.draw();
  }

  show(rest: string): void {
    if (rest.startsWith('add=')) {
      this.prefill(rest.slice(4));
      rest = '';
    }
    const key = /^[0-9a-f]{64}$/.test(rest) ? rest : undefined;
    if (this.talk?.who !== key) {
      this.talk?.close();
      this.talk = key === undefined ? undefined : new TalkView(this.app, key);
      this.place.replaceChildren(this.talk?.element ?? h('p', { class: 'muted hint' }, 'Choose somebody to talk to.'));
    }
    this.element.classList.toggle('has-talk', this.talk !== undefined);
    this.talk?.shown();
    this.draw();
  }

  /** A pairing link was followed: nobody is added before the user agrees. */
  private prefill(text: string): void {
    try {
      this.who.value = decodeURIComponent(text);
    } catch {
      this.who.value = text;
    }
    history.replaceState(null, '', '#/chats');
    this.name.focus();
  }

  private async add(e: Event): Promise<void> {
    e.preventDefault();
    try {
      const key = await this.read(this.who.value.trim());
      if (key === undefined) return;
      if (key === this.app.key) throw new Error('that is your own key');
      await this.app.book.add(key, cutName(this.name.value));
      this.problem.textContent = this.who.value = this.name.value = '';
      announce('Contact added');
      location.hash = `#/chats/${key}`;
    } catch (err) {
      this.problem.textContent = messageOf(err);
      this.who.focus();
    }
  }

  /** Reads a key, a pairing string or a link with one. Returns nothing if the user takes a step back. */
  private async read(text: string): Promise<Key | undefined> {
    if (/^[0-9a-fA-F]{64}$/.test(text)) text = formatPairing({ key: text.toLowerCase(), url: this.app.url }); // which checks it
    const link = /^https?:\/\/[^#]*#add=(.*)$/.exec(text);
    const p = parsePairing(link === null ? text : decodeURIComponent(link[1]!));
    const ours = this.app.relay?.key;
    if (p.url === this.app.url && p.relay !== undefined && ours !== undefined && p.relay !== ours) {
      throw new Error('the link says that this relay has another key than the one it has shown us: do not go on before that is clear');
    }
    const elsewhere = p.relay === undefined || ours === undefined ? p.url !== this.app.url : p.relay !== ours;
    if (elsewhere && !confirm(`That is somebody at another relay, ${p.url}.\n\nThis page uses its own relay only: messages arrive if the two are linked, and wait or are refused otherwise. Add the contact all the same?`)) return undefined;
    if (p.card !== undefined) await this.app.client.promiseCard(p.key, p.card);
    return p.key;
  }

  private draw(): void {
    const contacts = this.app.book.list();
    this.empty.hidden = contacts.length > 0;
    const focused = (document.activeElement as HTMLElement | null)?.dataset.key;
    this.list.replaceChildren(...contacts.map((c) => this.row(c)));
    if (focused !== undefined) this.list.querySelector<HTMLElement>(`[data-key="${focused}"]`)?.focus();
  }

  private row(c: Contact): HTMLElement {
    const last = this.app.book.talk(c.key).at(-1);
    const a = h('a', { href: `#/chats/${c.key}`, 'data-key': c.key, 'aria-current': c.key === this.talk?.who && 'true' },
      avatar(c),
      h('span', { class: 'grow' },
        h('span', { class: 'name clip' }, nameOf(c)),
        h('span', { class: 'muted small clip' }, last === undefined ? 'nothing said yet' : (last.mine ? 'You: ' : '') + last.text)),
      h('span', { class: 'aside' },
        h('span', { class: 'muted small' }, time(c.last)),
        c.unread > 0 && h('span', { class: 'unread' }, String(c.unread), h('span', { class: 'unseen' }, ' unread'))),
    );
    return h('li', {}, a);
  }
}

export function nameOf(c: Contact): string {
  return (c.name || shortKey(c.key)) + (c.known ? '' : ' (stranger)');
}

export function avatar(c: { key: Key; name: string }): HTMLElement {
  const e = h('span', { class: 'avatar', 'aria-hidden': 'true' }, [...(c.name || c.key)][0]!.toUpperCase());
  e.style.setProperty('--hue', String(hue(c.key) * 30));
  return e;
}

