// Rooms: site chat, for whoever comes. It is signed, so that nobody speaks for another,
// and not sealed, since anybody may listen.

import type { Key, Room } from '../../../sdk/js/src/index.js';
import type { App } from '../app.js';
import { announce, button, h } from '../dom.js';
import { cutName, hue, messageOf, shortKey, time } from '../text.js';

const mostLines = 300;

export class RoomsView {
  readonly title = 'Rooms';
  readonly icon = 'rooms';
  readonly element: HTMLElement;
  private readonly name: HTMLInputElement;
  private readonly nick: HTMLInputElement;
  private readonly problem = h('p', { class: 'problem', role: 'alert' });
  private readonly place = h('div', { class: 'talk-place' });
  private room: Room | undefined;
  private entering: AbortController | undefined;
  private turn = Promise.resolve(); // one room after the other

  constructor(private readonly app: App) {
    this.name = h('input', { id: 'room', required: true, value: 'lobby', maxlength: 64, autocomplete: 'off' });
    this.nick = h('input', { id: 'nick', autocomplete: 'nickname', maxlength: 40, value: localStorage.getItem('sotto-nick') ?? '' });
    const join = h('form', { class: 'card stack', submit: (e: Event) => this.join(e) },
      h('h2', {}, 'Enter a room'),
      h('label', { for: 'room' }, 'Room'), this.name,
      h('label', { for: 'nick' }, 'Your name there'), this.nick,
      h('p', { class: 'muted small' }, 'Whoever enters the same name is in the same room. What is said is signed, and public: relays could read it.'),
      this.problem,
      h('button', { class: 'primary' }, 'Enter'),
    );
    this.element = h('div', { class: 'chats' }, h('div', { class: 'side stack' }, h('h1', {}, 'Rooms'), join), this.place);
    this.idle();
  }

  private idle(): void {
    this.element.classList.remove('has-talk');
    this.place.replaceChildren(h('p', { class: 'muted hint' }, 'You are in no room.'));
  }

  private join(e: Event): void {
    e.preventDefault();
    this.entering?.abort(); // of a room that was not the right one
    const { signal } = (this.entering = new AbortController());
    this.turn = this.turn.then(() => this.enter(this.name.value.trim(), signal));
  }

  private async enter(name: string, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    this.problem.textContent = this.app.link === 'connected' ? '' : 'There is no connection: you enter once there is one.';
    try {
      await this.leave();
      localStorage.setItem('sotto-nick', this.nick.value);
      const talk = new RoomTalk(this.app, cutName(this.nick.value), () => void this.leave());
      const room = await this.app.client.join(name, (p) => talk.heard(p.from, p.text), { clear: true, signal });
      this.room = room;
      this.problem.textContent = '';
      this.place.replaceChildren(talk.element);
      this.element.classList.add('has-talk');
      talk.entered(room);
    } catch (err) {
      if (!signal.aborted) this.problem.textContent = messageOf(err);
    }
  }

  private async leave(): Promise<void> {
    const { room } = this;
    this.room = undefined;
    this.idle();
    await room?.leave().catch((err: unknown) => this.app.log.add(messageOf(err), true));
    if (room !== undefined) announce(`You have left ${room.name}`);
  }
}

/** What is said in one room. */
class RoomTalk {
  readonly element: HTMLElement;
  private readonly title = h('h2', { class: 'grow clip' });
  private readonly list = h('ol');
  private readonly scroll = h('div', { class: 'messages', role: 'log', 'aria-label': 'What is said in the room', tabindex: 0 }, this.list);
  private readonly text: HTMLInputElement;
  private readonly problem = h('p', { class: 'problem', role: 'alert' });
  private room: Room | undefined;

  constructor(private readonly app: App, private readonly nick: string, leave: () => void) {
    this.text = h('input', { id: 'room-say', 'aria-label': 'Say to the room', placeholder: 'Say to the room', autocomplete: 'off', maxlength: 2000 });
    this.element = h('section', { class: 'talk card', 'aria-label': 'Room' },
      h('div', { class: 'talk-head' }, this.title, button('Leave', leave, { class: 'quiet' })),
      this.scroll,
      h('form', { class: 'composer', submit: (e: Event) => this.say(e) }, this.problem,
        h('div', { class: 'composer-row' }, this.text, h('button', { class: 'primary' }, 'Send'))),
    );
  }

  entered(room: Room): void {
    this.room = room;
    this.title.textContent = room.name;
    const others = room.members - 1;
    this.note(others === 0 ? 'You are the first here.' : `${others} ${others === 1 ? 'other is' : 'others are'} here.`);
    this.text.focus();
  }

  /** Takes what somebody has said. */
  heard(from: Key, text: string): void {
    let said: { name?: unknown; text?: unknown };
    try {
      said = JSON.parse(text) as typeof said;
    } catch {
      said = { text };
    }
    if (typeof said?.text !== 'string') return;
    this.line(from, typeof said.name === 'string' ? cutName(said.name) : '', said.text.slice(0, 2000));
  }

  private async say(e: Event): Promise<void> {
    e.preventDefault();
    const text = this.text.value.trim();
    if (text === '' || this.room === undefined) return;
    this.text.value = '';
    const state = this.line(this.app.key, this.nick, text, 'waiting for the relay…');
    try {
      await this.room.send(JSON.stringify({ name: this.nick, text }));
      state.textContent = time(Date.now());
      this.problem.textContent = '';
    } catch (err) {
      state.textContent = 'failed';
      this.text.value ||= text;
      this.problem.textContent = messageOf(err);
    }
  }

  /** Shows a line, and returns what says when it was said. */
  private line(from: Key, name: string, text: string, at = time(Date.now())): HTMLElement {
    const mine = from === this.app.key;
    const state = h('p', { class: 'meta small' }, at);
    const who = h('span', { class: 'who small' }, mine ? 'You' : name || 'somebody', ' ', h('span', { class: 'muted mono' }, mine ? '' : shortKey(from)));
    who.style.setProperty('--hue', String(hue(from) * 30));
    this.append(h('li', { class: mine ? 'mine' : 'theirs' }, who, h('p', { class: 'said' }, text), state));
    return state;
  }

  private note(text: string): void {
    this.append(h('li', { class: 'note small muted' }, text));
  }

  private append(li: HTMLElement): void {
    this.list.append(li);
    while (this.list.children.length > mostLines) this.list.firstElementChild!.remove();
    this.scroll.scrollTop = this.scroll.scrollHeight;
  }
}
