// Two players at a table. The relay says only who wants to play, too; what they play goes
// sealed from one to the other.
//
// A table has a random half from each player, and every message names both: so what is
// left of an earlier game, or was sent to another page, is never part of this one.

import type { Key } from '../../../sdk/js/src/index.js';

export const games = ['tic-tac-toe', 'rock-paper-scissors', 'pong'] as const;
export type Game = (typeof games)[number];

/** A message between players. */
export interface Play {
  play: Game;
  from: string; // the sender's half of the table
  to: string; // the receiver's; empty in the first message, which says hello
  data?: unknown;
  left?: boolean; // the sender has left
  ask?: boolean; // is the receiver still there? the answer is a message without anything
}

/** What became of a message: the relay has it; the other one is not here; it was not sent. */
export type Sent = 'taken' | 'away' | 'failed';

export interface Line {
  self: Key;
  /** Waits for somebody who wants to play the same. */
  find(game: Game, signal: AbortSignal): Promise<Key>;
  /** Sends, sealed, as soon as there is a connection. What is fleeting is of no use later on. */
  send(to: Key, play: Play, fleeting: boolean): Promise<Sent>;
}

const patience = 20_000; // for a hello, ms
const askEvery = 5000; // ms
const mostUnanswered = 2; // asks; another interval later the other one has left

const half = /^[0-9a-f]{32}$/; // of a table

/** Says whether a value that came in a message is one of ours, and nothing else that somebody wants to be read. */
export function isPlay(v: unknown): v is Play {
  if (typeof v !== 'object' || v === null) return false;
  const { play, from, to, data, left, ask, ...rest } = v as Record<string, unknown>;
  const isHello = to === '' && data === undefined && left === undefined && ask === undefined;
  return games.includes(play as Game) && isHalf(from) && (isHello || isHalf(to)) &&
    [undefined, true].includes(left as undefined) && [undefined, true].includes(ask as undefined) && Object.keys(rest).length === 0;
}

function isHalf(v: unknown): boolean {
  return typeof v === 'string' && half.test(v);
}

/** A place in a game with somebody. */
export class Table {
  /** The other half, once it is known. */
  private theirs = '';
  private readonly waiting: unknown[] = [];
  private readonly mine = random();
  private listener: ((data: unknown) => void) | undefined;
  private gone: (() => void) | undefined;
  private asking: ReturnType<typeof setInterval> | undefined;
  private asked = false; // and it is not on its way yet
  private waited = false; // for a connection
  private unanswered = 0;
  private closed = false;
  private hello!: () => void;
  readonly ready = new Promise<void>((resolve) => (this.hello = resolve));

  constructor(private readonly line: Line, readonly game: Game, readonly peer: Key, private readonly onLeave: () => void) {}

  get self(): Key {
    return this.line.self;
  }

  /** The one with the lower key begins: both know who that is. */
  get first(): boolean {
    return this.line.self < this.peer;
  }

  /** Names the table, the same for both. */
  get id(): string {
    return [this.mine, this.theirs].sort().join('');
  }

  /** Calls data for what the other player sends, and left when he goes, or is not heard of any more. */
  listen(data: (data: unknown) => void, left: () => void): void {
    this.listener = data;
    this.gone = left;
    this.asking = setInterval(() => void this.ask(), askEvery);
    for (const d of this.waiting.splice(0)) data(d);
  }

  send(data: unknown, fleeting = false): Promise<Sent> {
    return this.post({ data }, fleeting);
  }

  /** The game is over: it is of no interest any more whether the other one is there. */
  rest(): void {
    clearInterval(this.asking);
  }

  leave(): void {
    if (this.closed) return;
    this.closed = true;
    this.rest();
    if (this.theirs !== '') void this.post({ left: true }, false);
    this.onLeave();
  }

  /** @internal */
  greet(): void {
    void this.line.send(this.peer, { play: this.game, from: this.mine, to: '' }, false);
  }

  private post(what: Pick<Play, 'data' | 'left' | 'ask'>, fleeting: boolean): Promise<Sent> {
    return this.line.send(this.peer, { play: this.game, from: this.mine, to: this.theirs, ...what }, fleeting);
  }

  /** Asks whether the other one is still there: a page that is closed has no time to say so. */
  private async ask(): Promise<void> {
    if (this.asked) return void (this.waited = true); // it is we who have no connection
    if (this.unanswered >= mostUnanswered) return this.miss();
    this.asked = true;
    this.waited = false;
    this.unanswered++;
    const sent = await this.post({ ask: true }, true);
    this.asked = false;
    // What has waited goes out as soon as the relay is back, when he may not be there yet.
    if (sent === 'failed' || this.waited) this.unanswered--;
  }

  /** The other one is gone, and is told so if he comes back. */
  private miss(): void {
    if (this.closed) return;
    this.leave();
    this.end();
  }

  private end(): void {
    this.rest();
    this.gone?.();
  }

  /** @internal */
  take(p: Play): void {
    if (p.to === '') {
      if (this.theirs !== '' && this.theirs !== p.from && this.listener !== undefined) return this.end(); // plays anew elsewhere
      this.theirs = p.from;
      return this.hello();
    }
    if (p.from !== this.theirs || p.to !== this.mine) return;
    this.unanswered = 0;
    if (p.left) return this.end();
    if (p.ask) return void this.post({}, true);
    if (p.data === undefined) return;
    if (this.listener !== undefined) this.listener(p.data);
    else if (this.waiting.length < 64) this.waiting.push(p.data);
  }
}

/** All tables of a player. */
export class Tables {
  private readonly open = new Map<string, Table>(); // by game and peer
  private readonly hellos = new Map<string, { play: Play; at: number }>(); // that came before the match

  constructor(private readonly line: Line) {}

  /** Waits for a player, and sits down. */
  async sit(game: Game, signal: AbortSignal): Promise<Table> {
    for (;;) {
      const peer = await this.line.find(game, signal);
      const table = await this.meet(game, peer, signal);
      if (table !== undefined) return table;
    }
  }

  /** Returns nothing if the other one does not come. */
  private async meet(game: Game, peer: Key, signal: AbortSignal): Promise<Table | undefined> {
    const place = `${game}/${peer}`;
    const table = new Table(this.line, game, peer, () => this.open.delete(place));
    this.open.set(place, table);
    table.greet();
    const early = this.hellos.get(place);
    this.hellos.delete(place);
    if (early !== undefined && Date.now() - early.at < patience) table.take(early.play);
    const late = AbortSignal.timeout(patience);
    const over = AbortSignal.any([signal, late]);
    const came = await Promise.race([
      table.ready.then(() => true),
      new Promise<boolean>((resolve) => over.addEventListener('abort', () => resolve(false), { once: true })),
    ]);
    if (came) return table;
    table.leave();
    signal.throwIfAborted();
    return undefined;
  }

  /** Takes a message of somebody's. */
  take(from: Key, p: Play): void {
    const place = `${p.play}/${from}`;
    const table = this.open.get(place);
    if (table !== undefined) return table.take(p);
    if (p.to !== '') {
      // Somebody plays on with us, who have left, with an earlier page perhaps.
      if (!p.left) void this.line.send(from, { play: p.play, from: p.to, to: p.from, left: true }, true);
      return;
    }
    this.hellos.set(place, { play: p, at: Date.now() });
    if (this.hellos.size > 64) this.hellos.delete(this.hellos.keys().next().value!);
  }
}

function random(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, '0')).join('');
}
