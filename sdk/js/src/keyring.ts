// Our cards, and what opens what is sealed to them (spec native.md, "Sealing").
//
// With a storage that lasts, their keys are random and erased in time, so that who
// comes by the identity later does not open what was sealed before. Without one,
// random keys would be lost with the page, and the messages in the inbox with them:
// the keys are derived from the identity and the number of the card, which follows
// from the time. The Go client has the same, so both can have one identity.

import { base64, type Bytes, view } from './bytes.js';
import {
  type Card, type CardSecret, decodeCard, maxCardLife, newCard, newCardSecret, openKeysOf,
} from './crypto/card.js';
import type { Identity } from './crypto/identity.js';
import { derivedOpenKey, type OpenKey } from './crypto/seal.js';
import { clockSkew } from './contacts.js';
import { asError, type SottoError } from './errors.js';
import type { Requests } from './requests.js';
import type { Storage } from './storage.js';

/** Cards are valid for as long as any may be, and are renewed at half time. */
const cardRenew = maxCardLife / 2;

/**
 * For how long keys open what is sealed to a card that has ended: a message sealed in
 * its last moment is tried for 7 days and waits in an inbox for 7. The day is for clocks.
 */
const keyTime = 15 * 24 * 3600 * 1000;

/** Before it makes a card because a relay has a newer one, a client waits. */
const outdoAfter = 3600 * 1000;

/** How often is looked whether a card has to be renewed: a timer sleeps as long as the machine does. */
const tendTime = 3600 * 1000;

interface OwnCard {
  card: Card;
  keys: OpenKey[];
}

export class Keyring {
  private readonly derivedKey: OpenKey;
  private cards: OwnCard[] = []; // the current one last
  private extra: OwnCard[] = []; // derived ones, which open but are not current
  private working: Promise<void> | undefined; // in turn
  private timer: ReturnType<typeof setInterval> | undefined;

  /** Cards are kept under names that begin with prefix. */
  constructor(
    private readonly identity: Identity, private readonly storage: Storage, private readonly prefix: string,
    private readonly requests: Requests, private readonly onError: (err: SottoError) => void,
  ) {
    this.derivedKey = derivedOpenKey(identity);
  }

  /** Returns the keys to open with what is sealed to the key with this id. */
  async openKeys(id: Bytes): Promise<OpenKey[]> {
    if (id.every((x) => x === 0)) return [this.derivedKey];
    await (this.working ?? this.tend());
    return [...this.cards, ...this.extra].flatMap((own) => own.keys);
  }

  /** Returns the serial of our current card, which may not have reached the relay yet. */
  async serial(): Promise<bigint> {
    await (this.working ?? this.tend());
    return this.cards.at(-1)!.card.serial;
  }

  /** Sees to it that the relay has our card, after each login. */
  async announce(): Promise<void> {
    this.timer ??= setInterval(() => void this.tendAndPut(), tendTime);
    await this.tendAndPut();
  }

  close(): void {
    clearInterval(this.timer);
  }

  private async tendAndPut(): Promise<void> {
    try {
      await this.tend();
      await this.put();
    } catch (err) {
      const e = asError(err);
      if (!['closed', 'unknown-verb', 'legacy-session', 'disconnected'].includes(e.code)) this.onError(e);
    }
  }

  private async put(): Promise<void> {
    const { card } = this.cards.at(-1)!;
    try {
      await this.requests.ask('put_card', { card: base64(card.encoded) });
    } catch (err) {
      // The relay has a card of another client with this identity: what is sealed to
      // that one we cannot open.
      if (asError(err).code !== 'denied') throw err;
      if (!this.storage.persistent || Date.now() - card.notBefore < outdoAfter) return;
      await this.inTurn(() => this.renew());
      await this.requests.ask('put_card', { card: base64(this.cards.at(-1)!.card.encoded) });
    }
  }

  /** Reads, makes, renews and erases cards, as it is time to. */
  private tend(): Promise<void> {
    return this.inTurn(async () => {
      const derived = await this.derive(Date.now());
      if (!this.storage.persistent) {
        this.cards = derived;
        return;
      }
      this.extra = derived;
      if (this.cards.length === 0) await this.load();
      await this.erase(Date.now());
      if (!this.isFresh(Date.now())) await this.renew();
    });
  }

  /** Says whether the newest card need not be renewed: one that was made when the clock was ahead is valid for nobody yet. */
  private isFresh(now: number): boolean {
    const from = this.cards.at(-1)?.card.notBefore;
    return from !== undefined && from - clockSkew <= now && now < from + cardRenew;
  }

  private inTurn(f: () => Promise<void>): Promise<void> {
    const turn = (this.working ?? Promise.resolve()).catch(() => undefined).then(f);
    this.working = turn;
    void turn.catch(() => undefined).then(() => {
      if (this.working === turn) this.working = undefined;
    });
    return turn;
  }

  private async load(): Promise<void> {
    for (const [, value] of await this.storage.list(this.prefix)) {
      try {
        const { card, secret } = value as { card: Bytes; secret: CardSecret };
        const decoded = await decodeCard(card);
        this.cards.push({ card: decoded, keys: await openKeysOf(decoded, secret) });
      } catch (err) {
        this.onError(asError(err)); // it is damaged; the others serve
      }
    }
    this.cards.sort((a, b) => (a.card.serial < b.card.serial ? -1 : 1));
  }

  private async erase(now: number): Promise<void> {
    for (const old of this.cards.filter(({ card }) => card.notAfter + keyTime < now)) {
      await this.storage.delete(this.name(old.card));
      this.cards = this.cards.filter((own) => own !== old);
    }
  }

  /**
   * Makes a new card, which is current once it is stored. Serials are times, so that
   * they increase even if the storage is lost; a clock that was put back does not let
   * them decrease.
   */
  private async renew(): Promise<void> {
    const now = Date.now();
    const last = this.cards.at(-1)?.card.serial ?? 0n;
    const serial = BigInt(now) > last ? BigInt(now) : last + 1n;
    const secret = newCardSecret();
    const card = await newCard(this.identity, serial, now, now + maxCardLife, secret);
    await this.storage.set(this.name(card), { card: card.encoded, secret });
    this.cards.push({ card, keys: await openKeysOf(card, secret) });
  }

  private name(card: Card): string {
    return this.prefix + String(card.serial).padStart(20, '0');
  }

  /**
   * Returns the derived cards for a time: number n begins n half lives after 1970, and
   * a time of the identity's own later, so that not everybody's begin at once.
   */
  private async derive(now: number): Promise<OwnCard[]> {
    const shift = Number(view(this.identity.public).getBigUint64(0) % BigInt(cardRenew));
    const current = Math.floor((now - shift) / cardRenew);
    const there = this.storage.persistent ? this.extra : this.cards;
    if (there.at(-1)?.card.notBefore === current * cardRenew + shift) return there;
    const cards: OwnCard[] = [];
    for (let number = current - 2; number <= current; number++) { // the first until its keyTime is over
      const from = number * cardRenew + shift;
      const secret = await this.identity.cardSecret(BigInt(number));
      const card = await newCard(this.identity, BigInt(from), from, from + maxCardLife, secret);
      cards.push({ card, keys: await openKeysOf(card, secret) });
    }
    return cards;
  }
}
