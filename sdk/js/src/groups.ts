// Groups: who has a key in common, for what is published to topics and rooms. Who is a
// member is the owner's list; what a relay says about it counts for nothing.

import { type Bytes, equal } from './bytes.js';
import { type Content, ContentType } from './crypto/content.js';
import { GroupKey, type Names } from './crypto/group.js';
import { checkedKeyBytes, type Key } from './crypto/identity.js';
import { asError, SottoError } from './errors.js';
import type { Storage } from './storage.js';

/** Old keys open what was published before the latest, and retained since: so many, for so long. */
const keptKeys = 8;
const keyTime = 15 * 24 * 3600 * 1000;

interface Kept {
  members: Key[]; // of a group of ours
  keys: { encoded: Bytes; replaced?: number }[]; // the oldest first; when there was another
}

/** A group that we own or were let into. */
export class Group {
  private keys: { key: GroupKey; replaced?: number }[] = [];
  private list: Key[] = [];

  constructor(
    /** Who decides about its members. */
    readonly owner: Key,
    /** 32 hexadecimal digits, which are the owner's for this group. */
    readonly id: string,
  ) {}

  /** The number of the latest key. Blinded names are others in each: subscribe again with them. */
  get epoch(): number {
    return this.latest.epoch;
  }

  /** The owner's list, without the owner; to others it is empty. */
  get members(): Key[] {
    return [...this.list];
  }

  /** @internal */
  get latest(): GroupKey {
    return this.keys.at(-1)!.key;
  }

  /** @internal Returns the name of a topic or filter for relays. */
  blind(name: string, names: Names, isFilter: boolean): Promise<string> {
    return this.latest.blind(name, names, isFilter);
  }

  /** @internal Encrypts for the members. */
  seal(name: string, data: Bytes): Promise<Bytes> {
    return this.latest.seal(name, data);
  }

  /** @internal Decrypts what a member has sealed. */
  async open(name: string, sealed: Bytes): Promise<Bytes> {
    const now = Date.now();
    const of = this.keys.find((k) => k.key.fits(sealed) && now - (k.replaced ?? now) < keyTime);
    if (of === undefined) throw new SottoError('unknown-key', 'sealed for another group, or with a key that we do not have');
    return of.key.open(name, sealed);
  }

  /** @internal */
  add(key: GroupKey): void {
    const now = Date.now();
    const old = this.keys.map((k) => ({ replaced: now, ...k })).filter((k) => now - k.replaced < keyTime);
    this.keys = [...old, { key }].slice(-keptKeys);
  }

  /** @internal */
  setMembers(list: Key[]): void {
    this.list = list;
  }

  /** @internal */
  toKept(): Kept {
    const keys = this.keys.map(({ key, replaced }) => ({ encoded: key.encode(), ...(replaced && { replaced }) }));
    return { members: this.members, keys };
  }

  /** @internal */
  static fromKept(owner: Key, id: string, kept: Kept): Group {
    const g = new Group(owner, id);
    g.list = kept.members;
    g.keys = kept.keys.map(({ encoded, replaced }) => ({ key: new GroupKey(encoded), ...(replaced && { replaced }) }));
    return g;
  }
}

export interface GroupsOptions {
  self: Key;
  storage: Storage;
  prefix: string; // of names in the storage
  /** Says whether a group of somebody's is wanted, whose first key has come. */
  accept(owner: Key, id: string): boolean;
  /** Sends a content, sealed. */
  send(to: Key, content: Content): Promise<unknown>;
  onKey(group: Group): void;
  /** A group that was kept is damaged. */
  onError(err: SottoError): void;
}

export class Groups {
  private readonly all = new Map<string, Group>(); // by owner and id

  constructor(private readonly options: GroupsOptions) {}

  async load(): Promise<void> {
    const { storage, prefix } = this.options;
    for (const [name, value] of await storage.list(prefix)) {
      const place = name.slice(prefix.length);
      const [owner, id] = place.split('/') as [Key, string];
      try {
        if (!this.all.has(place)) this.all.set(place, Group.fromKept(owner, id, value as Kept));
      } catch (err) {
        this.options.onError(asError(err)); // the others serve
      }
    }
  }

  list(): Group[] {
    return [...this.all.values()];
  }

  /** Makes a group that is ours, without members but us. */
  async create(): Promise<Group> {
    const key = GroupKey.generate();
    const group = new Group(this.options.self, key.id);
    group.add(key);
    await this.save(group);
    return group;
  }

  /** Puts somebody on the list, and sends the key: again to who is on it. */
  async invite(group: Group, member: Key): Promise<void> {
    checkedKeyBytes(member);
    this.checkOwn(group);
    group.setMembers([...group.members.filter((m) => m !== member), member]);
    await this.save(group);
    await this.give(group, member);
  }

  /** Takes a member off the list, begins a new epoch, and sends the others its key. */
  async remove(group: Group, member: Key): Promise<void> {
    this.checkOwn(group);
    group.setMembers(group.members.filter((m) => m !== member));
    group.add(group.latest.next());
    await this.save(group);
    await Promise.all(group.members.map((m) => this.give(group, m)));
  }

  /** Takes a GROUP_KEY: of a group that its sender owns, since there are no others. */
  async take(from: Key, data: Bytes): Promise<void> {
    const key = new GroupKey(data.slice());
    if (from === this.options.self) return; // ours are made here
    let group = this.all.get(`${from}/${key.id}`);
    if (group === undefined) {
      if (!this.options.accept(from, key.id)) throw new SottoError('denied', `a group of ${from} that is not wanted`);
      group = new Group(from, key.id);
    } else if (key.epoch <= group.epoch) {
      if (equal(key.encode(), group.latest.encode())) return this.save(group); // it could not be kept the first time, maybe
      throw new SottoError('denied', 'a key of a group that is no newer one');
    }
    group.add(key);
    await this.save(group);
    this.options.onKey(group);
  }

  private checkOwn(group: Group): void {
    if (this.all.get(`${this.options.self}/${group.id}`) !== group) {
      throw new SottoError('denied', 'not the owner of the group');
    }
  }

  private async give(group: Group, member: Key): Promise<void> {
    await this.options.send(member, { type: ContentType.groupKey, data: group.latest.encode() });
  }

  private async save(group: Group): Promise<void> {
    const place = `${group.owner}/${group.id}`;
    this.all.set(place, group);
    await this.options.storage.set(this.options.prefix + place, group.toKept());
  }
}
