// Rock, paper, scissors for two who don't trust each other. Both commit to what they take
// before either shows it: a commitment is a hash over the choice and 32 random bytes, so
// it tells nothing and fits nothing else. It names the table, the round and the player,
// so that nobody can repeat another's.

export const picks = ['rock', 'paper', 'scissors'] as const;
export type Pick = (typeof picks)[number];

export function isPick(v: unknown): v is Pick {
  return picks.includes(v as Pick);
}

/** Returns 1 if a beats b, -1 if b beats a, 0 if neither. */
export function compare(a: Pick, b: Pick): -1 | 0 | 1 {
  const d = (picks.indexOf(a) - picks.indexOf(b) + 3) % 3;
  return d === 0 ? 0 : d === 1 ? 1 : -1;
}

/** What a commitment is for. */
export interface Place {
  table: string;
  round: number;
  player: string;
}

/** Returns the commitment to a choice, in hex. The nonce is 64 hexadecimal digits. */
export async function commitment(p: Place, pick: Pick, nonce: string): Promise<string> {
  const text = ['sotto demo: rock, paper, scissors', p.table, p.round, p.player, pick, nonce].join('\0');
  return hex(new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text))));
}

/** Says whether a choice that is shown is the one that was committed to. */
export async function verify(p: Place, committed: string, pick: unknown, nonce: unknown): Promise<boolean> {
  if (!isPick(pick) || typeof nonce !== 'string' || !/^[0-9a-f]{64}$/.test(nonce)) return false;
  return (await commitment(p, pick, nonce)) === committed;
}

export function newNonce(): string {
  return hex(crypto.getRandomValues(new Uint8Array(32)));
}

function hex(b: Uint8Array): string {
  return Array.from(b, (v) => v.toString(16).padStart(2, '0')).join('');
}

/** What players send. */
export type Message = { round: number; commit: string } | { round: number; pick: string; nonce: string };

/** How a match stands: the rounds won by us and by the other. Ties are played again. */
export interface Score {
  mine: number;
  theirs: number;
}

export const roundsToWin = 2;

const patience = 20_000; // for the other's choice, once ours is shown, ms

/**
 * One player's side. It shows its choice only after the other has committed, and takes
 * nothing out of turn: what is out of turn, or does not fit, ends the match.
 */
export class Match {
  round = 1;
  readonly score: Score = { mine: 0, theirs: 0 };
  private chosen: { pick: Pick; nonce: string } | undefined;
  private commit: string | undefined; // the other's
  private committed = false; // we have
  private shown = false;

  constructor(
    private readonly place: { table: string; self: string; peer: string },
    /** Returns whether the message is on its way for sure. */
    private readonly send: (m: Message) => Promise<boolean>,
    /** Is told of the end of each round. */
    private readonly onRound: (mine: Pick, theirs: Pick, result: -1 | 0 | 1) => void,
    /** Is told that the other does not show his choice, after ours was: who sees that he loses must not get away with silence. */
    private readonly onWithheld: () => void,
  ) {}

  get hasChosen(): boolean {
    return this.chosen !== undefined;
  }

  /** The other has committed to a choice in this round. */
  get isAwaited(): boolean {
    return this.commit !== undefined;
  }

  /** We have shown our choice in this round, and the other could know how it ends. */
  get hasShown(): boolean {
    return this.shown;
  }

  get isOver(): boolean {
    return this.score.mine >= roundsToWin || this.score.theirs >= roundsToWin;
  }

  async choose(pick: Pick): Promise<void> {
    if (this.chosen !== undefined || this.isOver) return;
    this.chosen = { pick, nonce: newNonce() };
    const { round } = this;
    const commit = await commitment(this.of(this.place.self), pick, this.chosen.nonce);
    void this.send({ round, commit });
    this.committed = true;
    void this.show();
  }

  /** Takes what the other sends. Throws if he does not keep to the rules. Messages are taken one at a time. */
  async take(data: unknown): Promise<void> {
    const m = data as Partial<{ round: number; commit: string; pick: string; nonce: string }> | null;
    if (typeof m !== 'object' || m === null || m.round !== this.round || this.isOver) throw new Error('a message out of turn');
    if (typeof m.commit === 'string') {
      if (this.commit !== undefined || !/^[0-9a-f]{64}$/.test(m.commit)) throw new Error('a second commitment, or none');
      this.commit = m.commit;
      return void this.show();
    }
    // A choice is shown to who has committed, which we have.
    if (this.commit === undefined || !this.shown) throw new Error('a choice that was not committed to');
    if (!(await verify(this.of(this.place.peer), this.commit, m.pick, m.nonce))) {
      throw new Error('what was shown is not what was committed to');
    }
    const mine = this.chosen!.pick;
    const theirs = m.pick as Pick;
    const result = compare(mine, theirs);
    if (result > 0) this.score.mine++;
    if (result < 0) this.score.theirs++;
    this.round++;
    this.chosen = this.commit = undefined;
    this.committed = this.shown = false;
    this.onRound(mine, theirs, result);
  }

  private async show(): Promise<void> {
    if (!this.committed || this.commit === undefined || this.shown) return;
    this.shown = true;
    const { round } = this;
    if (!(await this.send({ round, ...this.chosen! }))) return;
    setTimeout(() => {
      if (this.round === round) this.onWithheld();
    }, patience);
  }

  private of(player: string) {
    return { table: this.place.table, round: this.round, player };
  }
}
