// What is known of others, and the choice of how to seal to them (spec native.md,
// "Choice"): with the card's X-Wing key, or, where there is no card and never was one,
// with the key derived from the identity.

import { type Bytes, equal, fromBase64, view } from './bytes.js';
import { type Card, decodeCard, sealKeyOf } from './crypto/card.js';
import { checkedKeyBytes, type Key } from './crypto/identity.js';
import { derivedSealKey, type SealKey } from './crypto/seal.js';
import { asError, SottoError } from './errors.js';
import { type Requests, textField } from './requests.js';
import type { Storage } from './storage.js';

/** How far a contact's clock may be ahead of ours, and ours of a contact's. */
export const clockSkew = 10 * 60 * 1000;

/** How long the answer holds about a contact whose card is to be renewed or who has none. */
const askAgain = 10 * 60 * 1000;

interface Contact {
  floor: bigint; // the highest serial that was seen or promised; 0 for none
  card?: Card; // the one with the highest serial that was seen
  asked: number; // when the relay has answered, ms since 1970
  turn: Promise<unknown>; // one asks at a time
}

export class Contacts {
  private readonly all = new Map<Key, Contact>();

  /** Contacts are kept under names that begin with prefix. onError is told of a card that is wrong where another serves. */
  constructor(
    private readonly storage: Storage, private readonly prefix: string, private readonly requests: Requests,
    private readonly onError: (err: SottoError) => void,
  ) {}

  /** Returns the key to seal to a contact with. It asks the relay, and waits for a connection, unless what is known holds. */
  sealKey(who: Key, signal?: AbortSignal): Promise<SealKey> {
    return this.inTurn(who, async (k) => {
      const now = Date.now();
      const usable = k.card !== undefined && isValid(k.card, now) && k.card.serial >= k.floor ? k.card : undefined;
      const first = k.card === undefined && k.floor === 0n;
      const recent = Math.abs(now - k.asked) < askAgain; // the clock may be put back
      if (usable !== undefined && (recent || now < halfLife(usable))) return sealKeyOf(usable, 3);
      if (first && recent) return derivedSealKey(checkedKeyBytes(who));
      try {
        return sealKeyOf(await this.ask(who, k, now, signal), 3);
      } catch (err) {
        const e = asError(err);
        const none = e.code === 'not-found' || e.code === 'unknown-verb' || e.code === 'legacy-session';
        if (none && e.code !== 'legacy-session') k.asked = now;
        if (first && none) return derivedSealKey(checkedKeyBytes(who));
        const withheld = none ? cardError(who, 'there is none, and there was one') : e;
        if (usable === undefined || (!none && e.code === 'card')) throw withheld;
        if (none) this.onError(withheld);
        return sealKeyOf(usable, 3);
      }
    });
  }

  /** Says whether a contact has a card, for all that was heard. */
  hasCard(who: Key): Promise<boolean> {
    return this.inTurn(who, async (k) => k.card !== undefined || k.floor > 0n);
  }

  /** Notes that a contact has a card with at least that serial, as a pairing string says. */
  promise(who: Key, serial: bigint): Promise<void> {
    return this.inTurn(who, async (k) => {
      if (serial <= k.floor) return;
      k.asked = 0;
      await this.keep(who, k, serial, k.card);
    });
  }

  /** Forgets which card a contact had, so that the next message is sealed as to somebody new. */
  forget(who: Key): Promise<void> {
    return this.inTurn(who, async () => {
      await this.storage.delete(this.prefix + who);
      this.all.delete(who);
    });
  }

  private inTurn<T>(who: Key, f: (k: Contact) => Promise<T>): Promise<T> {
    let k = this.all.get(who);
    if (k === undefined) {
      k = { floor: 0n, asked: 0, turn: Promise.resolve() };
      k.turn = this.load(who, k);
      this.all.set(who, k);
    }
    const contact = k;
    const turn = contact.turn.then(() => f(contact));
    contact.turn = turn.catch(() => undefined);
    return turn;
  }

  private async load(who: Key, k: Contact): Promise<void> {
    const kept = (await this.storage.get(this.prefix + who)) as { floor: Bytes; card?: Bytes } | undefined;
    if (kept === undefined) return;
    k.floor = view(kept.floor).getBigUint64(0);
    try {
      if (kept.card !== undefined) k.card = await decodeCard(kept.card);
    } catch {
      this.onError(cardError(who, 'what is stored of it is damaged')); // the floor still holds
    }
  }

  private async keep(who: Key, k: Contact, floor: bigint, card: Card | undefined): Promise<void> {
    const b = new Uint8Array(8);
    view(b).setBigUint64(0, floor);
    await this.storage.set(this.prefix + who, { floor: b, ...(card && { card: card.encoded }) });
    k.floor = floor;
    if (card !== undefined) k.card = card;
  }

  /** Gets the contact's card from the relay. */
  private async ask(who: Key, k: Contact, now: number, signal?: AbortSignal): Promise<Card> {
    const answer = await this.requests.ask('get_card', { key: who }, signal);
    const encoded = fromBase64(textField(answer, 'card'));
    let card: Card;
    try {
      card = await decodeCard(encoded ?? new Uint8Array(0));
    } catch {
      throw cardError(who, 'not signed by its identity');
    }
    if (!equal(card.identity, checkedKeyBytes(who))) throw cardError(who, 'of another identity');
    if (card.serial < k.floor || (k.card?.serial === card.serial && !equal(k.card.id, card.id))) {
      throw cardError(who, 'older than one that was seen');
    }
    if (!isValid(card, now)) throw cardError(who, 'not valid now');
    k.asked = now;
    if (k.card === undefined || !equal(k.card.id, card.id)) await this.keep(who, k, card.serial, card);
    return card;
  }
}

function cardError(who: Key, what: string): SottoError {
  return new SottoError('card', `card of ${who}: ${what}`);
}

/** Allows for the contact's clock at the beginning only: after the end it may have erased its keys. */
function isValid(card: Card, now: number): boolean {
  return now <= card.notAfter && now + clockSkew >= card.notBefore;
}

/** Returns when a contact renews its card. */
function halfLife(card: Card): number {
  return card.notBefore + (card.notAfter - card.notBefore) / 2;
}
