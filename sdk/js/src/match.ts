import { checkedKeyBytes, type Key } from './crypto/identity.js';
import { malformed, type SottoError } from './errors.js';
import { untilAborted } from './outbox.js';
import { type Answer, type Ask, type Requests, textField } from './requests.js';

interface Search {
  resolve(peer: Key): void;
  reject(err: unknown): void;
  /** The relay, or an earlier one, has answered. Until then the request is sent again by itself. */
  waits: boolean;
}

/** Searches for others who want to play the same game. They go on after each login. */
export class Matches {
  private readonly searches = new Map<string, Search>();

  constructor(private readonly requests: Requests) {}

  /** Waits for somebody, and returns who it is. An abort ends the search. */
  async find(game: string, signal?: AbortSignal): Promise<Key> {
    if (this.searches.has(game)) throw malformed('already searching for that game');
    let search!: Search;
    const peer = new Promise<Key>((resolve, reject) => (search = { resolve, reject, waits: false }));
    this.searches.set(game, search);
    const asked = this.requests.ask('find_match', { game }, signal).then((answer) => {
      search.waits = true;
      this.take(answer);
      return peer;
    });
    try {
      return await untilAborted(Promise.race([asked, peer]), signal);
    } catch (err) {
      if (signal?.aborted) this.requests.ask('cancel_match', { game }).catch(() => undefined); // the end cancels it, too
      throw err;
    } finally {
      this.searches.delete(game);
    }
  }

  /** Takes an answer to find_match, or a notice. */
  take(answer: Answer): void {
    if (answer.t !== 'matched') return;
    const peer = textField(answer, 'peer');
    checkedKeyBytes(peer);
    this.searches.get(textField(answer, 'game'))?.resolve(peer);
  }

  /** Returns what has to be asked for after a login. */
  again(): Ask[] {
    return [...this.searches].filter(([, search]) => search.waits).map(([game, search]) => ({
      verb: 'find_match', fields: { game },
      settle: (answer, err) => (answer ? this.take(answer) : search.reject(err)),
    }));
  }

  close(err: SottoError): void {
    for (const search of this.searches.values()) search.reject(err);
  }
}
