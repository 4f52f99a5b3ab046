// Topics and rooms: what is published, and who listens. Both are joined again after
// each login, and what was missed meanwhile is told as a gap.

import { type Bytes, fromUTF8, hex, utf8 } from './bytes.js';
import type { Names } from './crypto/group.js';
import type { Key } from './crypto/identity.js';
import { verify } from './crypto/verify.js';
import { asError, malformed, SottoError } from './errors.js';
import { matches } from './filters.js';
import type { Group } from './groups.js';
import type { Answer, Ask, Requests } from './requests.js';
import { Flag, type Frame, Type } from './wire/frame.js';
import { decodePublication, frameToSign } from './wire/payload.js';

/**
 * How publications are protected. With a group they are sealed for its members, and what
 * was not is dropped; `names` says what relays see of the names of topics. `clear` has
 * relays read them. Signed they are in any case.
 */
export type GroupOption = { group: Group; names?: Names; clear?: false } | { clear: true; group?: undefined };

/** What was published to a topic or a room. Its signature was verified. */
export interface Publication {
  /** The topic or room; of a blinded topic what relays see, unless the filter says what it is. */
  name: string;
  from: Key;
  id: string; // hex
  bytes: Bytes;
  /** The bytes as text; U+FFFD stands for what is not UTF-8. */
  text: string;
  /** A value that the relay has kept for those who subscribe. */
  retained: boolean;
}

/** Publications to a topic or room were missed. */
export interface Gap {
  topic?: string; // the filter
  room?: string;
}

type Listener = (p: Publication) => void;

interface Subscription {
  shown: string; // the filter as the application has it
  listeners: Map<object, { f: Listener; how: GroupOption }>;
  confirmed: boolean; // by this relay or an earlier one
}

/** A room that was joined. */
export interface Room {
  readonly name: string;
  /** How many there are, as of the latest join. It is the relay's word. */
  readonly members: number;
  /** Sends to all others who are in the room, and waits for the relay's receipt. */
  send(body: string | Uint8Array): Promise<void>;
  leave(): Promise<void>;
}

/** Whom a publication is for. */
interface Target {
  f: Listener;
  how: GroupOption;
  shown?: string; // its name, where relays have another
}

interface Joined {
  f: Listener;
  how: GroupOption;
  members: number;
}

export interface PublicationsOptions {
  requests: Requests;
  /** Sends a signed frame to a topic or room, and waits for the relay's receipt. */
  publish(type: number, name: string, content: Bytes, flags: number): Promise<void>;
  onGap(gap: Gap): void;
  onError(err: SottoError): void;
}

export class Publications {
  private readonly topics = new Map<string, Subscription>(); // by filter, as relays see it
  private readonly rooms = new Map<string, Joined>();

  constructor(private readonly options: PublicationsOptions) {}

  /** Calls f for what is published to the topics of a filter, once the relay has agreed. */
  async subscribe(shown: string, f: Listener, how: GroupOption, signal?: AbortSignal): Promise<() => Promise<void>> {
    checkHow(how);
    const key = {};
    const filter = await wireName(shown, how, true);
    let s = this.topics.get(filter);
    if (s === undefined) this.topics.set(filter, (s = { shown, listeners: new Map(), confirmed: false }));
    const subscription = s;
    subscription.listeners.set(key, { f, how });
    const leave = (): boolean => {
      if (!subscription.listeners.delete(key) || subscription.listeners.size > 0) return false;
      if (this.topics.get(filter) === subscription) this.topics.delete(filter);
      return true;
    };
    try {
      await this.options.requests.ask('subscribe', { topic: filter }, signal);
      subscription.confirmed = true;
    } catch (err) {
      // Who has given up may have asked already.
      if (leave() && signal?.aborted) this.options.requests.ask('unsubscribe', { topic: filter }).catch(() => undefined);
      throw err;
    }
    return async () => {
      if (leave()) await this.options.requests.ask('unsubscribe', { topic: filter });
    };
  }

  /** Publishes, and waits for the relay's receipt. An empty content with retain clears what was retained. */
  async publish(topic: string, body: string | Uint8Array, how: GroupOption & { retain?: boolean }): Promise<void> {
    checkHow(how);
    const content = contentOf(body);
    const name = await wireName(topic, how, false);
    await this.options.publish(Type.publish, name, await sealed(name, content, how), how.retain ? Flag.retain : 0);
  }

  /** Joins a room, once the relay has agreed. */
  async join(name: string, f: Listener, how: GroupOption, signal?: AbortSignal): Promise<Room> {
    checkHow(how);
    if (this.rooms.has(name)) throw malformed('already in that room');
    const joined: Joined = { f, how, members: 0 };
    this.rooms.set(name, joined);
    try {
      const answer = await this.options.requests.ask('join_room', { room: name }, signal);
      const members = membersOf(answer);
      if (members === undefined) throw malformed('answer without members');
      joined.members = members;
    } catch (err) {
      this.rooms.delete(name);
      if (signal?.aborted) this.options.requests.ask('leave_room', { room: name }).catch(() => undefined); // it may have been asked
      throw err;
    }
    return {
      name,
      get members() {
        return joined.members;
      },
      send: async (body) => {
        if (this.rooms.get(name) !== joined) throw new SottoError('not-in-room', name);
        const content = await sealed(name, contentOf(body), how);
        await this.options.publish(Type.roomSend, name, content, 0);
      },
      leave: async () => {
        if (this.rooms.get(name) !== joined) return;
        this.rooms.delete(name);
        await this.options.requests.ask('leave_room', { room: name });
      },
    };
  }

  /** Returns what has to be asked for after a login. What was joined before has a gap. */
  rejoin(): Ask[] {
    const asks: Ask[] = [];
    for (const [topic, s] of this.topics) {
      if (!s.confirmed) continue; // is asked for again by itself
      this.options.onGap({ topic: s.shown });
      asks.push({ verb: 'subscribe', fields: { topic }, settle: (_, err) => err && this.options.onError(err) });
    }
    for (const [room, joined] of this.rooms) {
      if (joined.members === 0) continue;
      this.options.onGap({ room });
      asks.push({
        verb: 'join_room', fields: { room },
        settle: (answer, err) => (err ? this.options.onError(err) : (joined.members = membersOf(answer!) ?? joined.members)),
      });
    }
    return asks;
  }

  /** Takes a notice that publications were dropped. */
  gap(topic: unknown): void {
    if (typeof topic === 'string') this.options.onGap({ topic: this.topics.get(topic)?.shown ?? topic });
  }

  /** Takes a MESSAGE or ROOM_MESSAGE. */
  async receive(f: Frame): Promise<void> {
    try {
      const { name, content } = decodePublication(f.payload.slice());
      const type = f.type === Type.message ? Type.publish : Type.roomSend;
      await verify(f.sender, frameToSign(type, f.id, f.payload), f.signature);
      const listeners = type === Type.publish ? this.subscribersOf(name) : [this.rooms.get(name)];
      for (const l of listeners) if (l !== undefined) await this.hand(l, f, name, content);
    } catch (err) {
      this.options.onError(asError(err));
    }
  }

  private subscribersOf(topic: string): Target[] {
    return [...this.topics]
      .filter(([filter]) => matches(filter, topic))
      .flatMap(([filter, s]) => [...s.listeners.values()].map((l) => (filter === topic ? { ...l, shown: s.shown } : l)));
  }

  private async hand(to: Target, f: Frame, name: string, content: Bytes): Promise<void> {
    const retained = (f.flags & Flag.retain) !== 0;
    // An empty content says that a retained value was cleared, and is not sealed.
    const bytes = to.how.group && content.length > 0 ? await to.how.group.open(name, content) : content;
    const text = fromUTF8(bytes) ?? new TextDecoder().decode(bytes);
    const publication = { name: to.shown ?? name, from: hex(f.sender), id: hex(f.id), bytes, text, retained };
    void (async () => to.f(publication))().catch((err: unknown) => this.options.onError(asError(err)));
  }
}

function checkHow(how: GroupOption): void {
  if (how.group === undefined && !how.clear) throw malformed('either a group or { clear: true }');
}

/** Returns the bytes, which whoever has given them may change from now on. */
function contentOf(body: string | Uint8Array): Bytes {
  return typeof body === 'string' ? utf8(body) : new Uint8Array(body);
}

/** Returns how many are in a room, with us; nothing if the relay says something else. */
function membersOf(answer: Answer): number | undefined {
  const n = answer.members;
  return Number.isSafeInteger(n) && (n as number) > 0 ? (n as number) : undefined;
}

/** Returns a topic or filter as relays see it. */
async function wireName(name: string, how: GroupOption, isFilter: boolean): Promise<string> {
  return how.group === undefined ? name : how.group.blind(name, how.names ?? 'clear', isFilter);
}

async function sealed(name: string, content: Bytes, how: GroupOption): Promise<Bytes> {
  return how.group === undefined || content.length === 0 ? content : how.group.seal(name, content);
}
