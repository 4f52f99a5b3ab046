// Games with whoever wants to play, too.

import type { App } from '../app.js';
import { announce, button, h } from '../dom.js';
import type { Game, Table } from '../games/table.js';
import { messageOf, shortKey } from '../text.js';
import { playPong } from './pong.js';
import { playRPS } from './rps.js';
import { playTicTacToe } from './tictactoe.js';

/** What a game shows, and how it ends. */
export interface Playing {
  element: HTMLElement;
  /** Is called once: the other has left, or we leave. */
  stop(): void;
}

/** Begins a game: say tells how it stands, over how it has ended. */
export type PlayGame = (table: Table, say: (text: string) => void, over: (text: string) => void) => Playing;

const games: { name: Game; title: string; about: string; play: PlayGame }[] = [
  { name: 'tic-tac-toe', title: 'Tic-tac-toe', about: 'Three in a row. Who is away for fifteen seconds has left.', play: playTicTacToe },
  { name: 'rock-paper-scissors', title: 'Rock, paper, scissors', about: 'Both commit before either shows, so nobody cheats. Two rounds win. Who does not show within 20 seconds loses.', play: playRPS },
  { name: 'pong', title: 'Pong', about: 'Real time: thirty sealed messages a second that nobody keeps. Three points win.', play: playPong },
];

export class GamesView {
  readonly title = 'Games';
  readonly icon = 'games';
  readonly element = h('div', { class: 'columns games' });
  private end: (() => void) | undefined;

  constructor(private readonly app: App) {
    this.choose();
    addEventListener('pagehide', () => this.end?.());
  }

  private choose(): void {
    this.end = undefined;
    this.element.replaceChildren(
      h('h1', {}, 'Games'),
      ...games.map((g) => h('section', { class: 'card stack' },
        h('h2', {}, g.title), h('p', {}, g.about),
        button('Play', () => this.search(g), { class: 'primary', 'aria-label': `Play ${g.title}` }))),
      h('p', { class: 'muted small wide' }, 'The relay finds somebody who wants to play the same. To try it alone, open this page in a private window, too.'),
    );
  }

  private async search(g: (typeof games)[number]): Promise<void> {
    const stop = new AbortController();
    this.end = () => stop.abort();
    const cancel = button('Cancel', () => stop.abort(), { class: 'quiet' });
    this.element.replaceChildren(h('h1', {}, g.title), h('section', { class: 'card stack wide' },
      h('p', { role: 'status' }, 'Waiting for somebody who wants to play, too …'), h('div', { class: 'pulse', 'aria-hidden': 'true' }), h('p', {}, cancel)));
    cancel.focus();
    announce('Waiting for somebody who wants to play, too');
    try {
      this.play(g, await this.app.tables.sit(g.name, stop.signal));
    } catch (err) {
      this.choose();
      if (stop.signal.aborted) return;
      this.element.append(h('p', { class: 'problem wide', role: 'alert' }, messageOf(err)));
    }
  }

  private play(g: (typeof games)[number], table: Table): void {
    const state = h('p', { class: 'game-state', role: 'status', 'aria-live': 'polite' });
    const again = h('p', { hidden: true }, button('Play again', () => {
      leave();
      void this.search(g);
    }, { class: 'primary' }));
    let running = true;
    const over = (text: string): void => {
      if (!running) return;
      running = false;
      state.textContent = text;
      again.hidden = false;
      playing.stop();
      table.rest();
    };
    const leave = (): void => {
      running = false;
      playing.stop();
      table.leave();
    };
    this.end = leave;
    this.app.log.add(`${g.title} with ${shortKey(table.peer)}`);
    const playing = g.play(table, (text) => running && (state.textContent = text), (text) => setTimeout(() => over(text)));
    this.element.replaceChildren(
      h('h1', {}, g.title),
      h('section', { class: 'card stack wide game' },
        h('p', { class: 'muted small' }, 'Against ', this.app.book.get(table.peer)?.name || h('span', { class: 'mono' }, shortKey(table.peer))),
        state, playing.element, again,
        h('p', {}, button('Leave', () => {
          leave();
          this.choose();
        }, { class: 'quiet' }))),
    );
    playing.element.querySelector<HTMLElement>('button, [tabindex="0"]')?.focus();
  }
}
