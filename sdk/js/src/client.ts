import { Acks } from './acks.js';
import { keepAttached } from './attach.js';
import { type Bytes, fromUTF8, hex, isZero } from './bytes.js';
import { Connection } from './connection.js';
import { Contacts } from './contacts.js';
import { ContentType } from './crypto/content.js';
import { decodeControl, decodePart } from './crypto/filepart.js';
import { GroupKey } from './crypto/group.js';
import type { Identity, Key } from './crypto/identity.js';
import { asError, malformed, SottoError } from './errors.js';
import { Emitter, type Off } from './events.js';
import { type AcceptFile, type FileProgress, FileReceiver } from './filereceive.js';
import { FileSender, type SendFileOptions, type SendPart } from './filesend.js';
import { type Group, Groups } from './groups.js';
import type { RelayInfo } from './handshake.js';
import { type Arrival, Inbox } from './inbox.js';
import { Keyring } from './keyring.js';
import { type Body, contentOf, type Letter, letterOf, openFrame, type Opened } from './letter.js';
import { Matches } from './match.js';
import { Outbox, untilAborted } from './outbox.js';
import { type Gap, type GroupOption, type Publication, Publications, type Room } from './publications.js';
import { type Answer, Requests } from './requests.js';
import { Retry } from './retry.js';
import { Sender, type Receipt, type SendOptions } from './sender.js';
import { isPrivate, type Server, Servers } from './servers.js';
import type { Session, WebSocketClass } from './session.js';
import { MemoryStorage, type Storage } from './storage.js';
import { forgetKey } from './trust.js';
import { type Frame, isLetter, newFrame, Type } from './wire/frame.js';
import { decodeServers, requestServers } from './wire/nodeinfo.js';
import { decodeSealed } from './wire/payload.js';

/** Who a client is and how it reaches its relay. */
export interface ClientOptions {
  identity: Identity;
  /** The relay, or several of which one is selected: the first, until another one is. */
  url: string | { url: string; key?: Key }[];
  /** The key that the relay at a single url must have. Not given: the one that it had when first reached there. */
  relay?: Key;
  /** Where messages on their way, keys of cards and keys of relays are kept. Not given: in memory. */
  storage?: Storage;
  /** Not given: that of the platform, which Node has from version 22 on. */
  WebSocket?: WebSocketClass;
  /** Allows a relay that speaks handshake v1 only. It proves nothing, and carries no sealed messages. */
  allowLegacy?: boolean;
  /** A token for the relay's policy; a function is asked for every connection. */
  token?: string | (() => string | Promise<string>);
  /** Returns the X25519 key of a contact that was given by hand; who has none gets SEALED. */
  x25519?(contact: Key): Bytes | undefined;
  /** Decides about files that others offer. Not given: all are refused. */
  acceptFile?: AcceptFile;
  /** Says whether a group of somebody's is wanted, whose first key has come. Not given: none is. */
  acceptGroup?(owner: Key, id: string): boolean;
  /** Before attempt n to reconnect, from 0, it waits a random time of at most min·2ⁿ and max ms (500 and 30,000). */
  backoff?: { min?: number; max?: number };
  /** What may be on its way: beyond that `send` waits (1,024 messages, 32 MiB). */
  pending?: { messages?: number; bytes?: number };
}

/** What a client tells. */
export interface ClientEvents {
  /** After each login. */
  connected: RelayInfo & { url: string };
  /** A connection has ended, or an attempt failed. Another is made after retryIn ms; undefined: none, the client has ended. */
  disconnected: { error: SottoError; retryIn: number | undefined };
  /** The relay is not on this machine, and the connection is not encrypted. */
  insecure: { url: string };
  /** A message. It is acknowledged when the listeners have returned, and promises they returned are fulfilled; if one
   * throws, it comes again after the next login. Without a listener it waits. */
  message: Letter;
  /** A message that was sent has come further. */
  receipt: Receipt;
  /** The relay has refused a message, or it expired. `send` throws the same, if it still waits. */
  refused: Receipt & { error: SottoError };
  /** A step of a file that comes in. */
  file: FileProgress;
  /** The key of a group came from its owner: it is new, or begins another epoch. */
  group: Group;
  /** Publications were missed. */
  gap: Gap;
  /** Something went wrong that no call reports. Without a listener it is passed over. */
  error: Error;
  /** The list of servers, or the selected one, is another. */
  serversChanged: Server[];
}

/**
 * A key that is logged in at a relay, most of the time. It seals what it sends, opens
 * what it gets, and keeps a message until the relay has answered for it. All methods may
 * be called at any time, also by listeners.
 */
export class Client extends Emitter<ClientEvents> {
  private readonly storage: Storage;
  private readonly connection: Connection;
  private readonly requests: Requests;
  private readonly keyring: Keyring;
  private readonly contacts: Contacts;
  private readonly inbox: Inbox;
  private readonly outbox: Outbox;
  private readonly sender: Sender;
  private readonly publications: Publications;
  private readonly matches: Matches;
  private readonly acks: Acks;
  private readonly groupKeys: Groups;
  private readonly filesOut: FileSender;
  private readonly filesIn: FileReceiver;
  private readonly known: Servers;
  private readonly listening: (() => void)[] = []; // wait for a listener of messages
  private running: Promise<SottoError> | undefined;
  private session: Session | undefined;
  private warned = false;

  readonly #options: ClientOptions; // with a token, shown by no inspection

  constructor(options: ClientOptions) {
    super();
    this.#options = options;
    const { identity } = options;
    const WebSocket = options.WebSocket ?? (globalThis.WebSocket as WebSocketClass | undefined);
    if (WebSocket === undefined) throw malformed('there is no WebSocket here: pass one in');
    const storage = (this.storage = options.storage ?? new MemoryStorage());
    const of = (what: string) => `${what}/${identity.key}/`;
    const onError = (err: Error) => this.emit('error', err);
    const servers = typeof options.url === 'string'
      ? [{ url: options.url, ...(options.relay && { key: options.relay }) }]
      : options.url;
    this.known = new Servers(servers, storage, () => this.emit('serversChanged', this.servers));
    this.requests = new Requests((notice) => this.notice(notice));
    this.keyring = new Keyring(identity, storage, of('card'), this.requests, onError);
    this.contacts = new Contacts(storage, of('contact'), this.requests, onError);
    this.outbox = new Outbox(
      storage, of('outbox'), options.pending?.messages ?? 1024, options.pending?.bytes ?? 32 << 20, onError,
    );
    this.sender = new Sender({
      identity, contacts: this.contacts, outbox: this.outbox,
      x25519: (contact) => options.x25519?.(contact),
      onReceipt: (r) => this.emit('receipt', r),
      onRefused: (r, error) => this.emit('refused', { ...r, error }),
    });
    this.acks = new Acks(identity);
    this.inbox = new Inbox({
      storage, prefix: of('seen'), onError,
      open: (f) => this.openLetter(f),
      lane: (f, o) => laneOf(f, o),
      deliver: (a) => this.deliver(a),
      acknowledge: (a) => this.acks.add(a.frame, a.session),
    });
    this.publications = new Publications({
      requests: this.requests, onError,
      publish: (type, name, content, flags) => this.sender.publish(type, name, content, flags),
      onGap: (gap) => this.emit('gap', gap),
    });
    this.matches = new Matches(this.requests);
    const send: SendPart = (to, content, signal) => this.sender.send(to, content, signal ? { signal } : {}, false);
    this.filesOut = new FileSender(send);
    this.filesIn = new FileReceiver(send, options.acceptFile ?? (() => false), (p) => this.emit('file', p));
    this.groupKeys = new Groups({
      self: identity.key, storage, prefix: of('group'),
      send: (to, content) => this.sender.send(to, content, { until: 'queued' }),
      accept: (owner, id) => options.acceptGroup?.(owner, id) ?? false,
      onKey: (group) => this.emit('group', group),
      onError,
    });
    this.connection = new Connection({
      identity, storage, WebSocket, servers: this.known,
      allowLegacy: options.allowLegacy ?? false,
      ...(options.token !== undefined && { token: options.token }),
      retry: new Retry(options.backoff?.min, options.backoff?.max),
      onFrame: (f, session) => this.receive(f, session),
      onUp: (session, signal) => this.up(session, signal),
      onDown: (error, retryIn) => this.emit('disconnected', { error, retryIn }),
    });
  }

  /** Our key, which others write to. */
  get key(): Key {
    return this.#options.identity.key;
  }

  /** Whether there is a connection. */
  get connected(): boolean {
    return this.session !== undefined;
  }

  /**
   * Begins, and returns after the first login. Until then, and after, it keeps trying,
   * unless it is refused for good, which is the error. An abort ends the wait only.
   */
  async connect(signal?: AbortSignal): Promise<void> {
    if (this.connected) return;
    const up = new Promise<void>((resolve) => this.once('connected', () => resolve()));
    this.running ??= this.run();
    const ended = this.running.then((err) => {
      throw err;
    });
    await untilAborted(Promise.race([up, ended]), signal);
  }

  private async run(): Promise<SottoError> {
    let why: SottoError;
    try {
      await Promise.all([this.known.load(), this.inbox.load(), this.outbox.load(), this.groupKeys.load()]);
      why = await this.connection.run();
    } catch (err) {
      why = asError(err); // of the storage
    }
    this.requests.close(why);
    this.matches.close(why);
    this.outbox.close(why);
    this.inbox.close();
    this.filesOut.close(why);
    this.filesIn.close();
    this.keyring.close();
    this.emit('disconnected', { error: why, retryIn: undefined });
    return why;
  }

  /** Ends the client. What waits ends with `closed`; what a storage keeps is left to the next client. */
  async close(): Promise<void> {
    this.acks.flush();
    const closed = new SottoError('closed', 'closed');
    this.connection.close(closed);
    this.running ??= this.run();
    await this.running;
  }

  override on<K extends keyof ClientEvents>(name: K, f: (value: ClientEvents[K]) => unknown): Off {
    const off = super.on(name, f);
    if (name === 'message') for (const wake of this.listening.splice(0)) wake();
    return off;
  }

  /** Sends a message, sealed if not said otherwise, and returns when it has come as far as asked. */
  async send(to: Key, body: Body, options: SendOptions = {}): Promise<Receipt> {
    return this.sender.send(to, contentOf(body), options);
  }

  /**
   * Sends a file of any size, sealed, and returns when the receiver has it whole. One
   * small part is sent before the receiver has accepted. It goes on after a reconnect.
   */
  sendFile(to: Key, file: Blob, options: SendFileOptions = {}): Promise<void> {
    return this.filesOut.sendFile(to, file, options);
  }

  /** The groups that we own or were invited to. */
  get groups(): Group[] {
    return this.groupKeys.list();
  }

  /** Makes a group of which we are the owner. */
  createGroup(): Promise<Group> {
    return this.groupKeys.create();
  }

  /** Makes somebody a member of a group of ours. */
  invite(group: Group, member: Key): Promise<void> {
    return this.groupKeys.invite(group, member);
  }

  /** Ends a membership: what is sealed for the group from now on the member cannot read. */
  expel(group: Group, member: Key): Promise<void> {
    return this.groupKeys.remove(group, member);
  }

  /**
   * Calls f for what is published to topics that a filter matches, and returns what ends
   * that. After each login it subscribes again, and a `gap` tells that something may be
   * missing.
   */
  subscribe(
    filter: string, f: (p: Publication) => void, options: GroupOption & { signal?: AbortSignal },
  ): Promise<() => Promise<void>> {
    return this.publications.subscribe(filter, f, options, options.signal);
  }

  /** Publishes to a topic, and returns at the relay's receipt. */
  publish(topic: string, body: string | Uint8Array, options: GroupOption & { retain?: boolean }): Promise<void> {
    return this.publications.publish(topic, body, options);
  }

  /** Joins a room, and calls f for what others send there. */
  join(room: string, f: (p: Publication) => void, options: GroupOption & { signal?: AbortSignal }): Promise<Room> {
    return this.publications.join(room, f, options, options.signal);
  }

  /** Waits for somebody who wants to play the same game, and returns who it is. */
  findMatch(game: string, signal?: AbortSignal): Promise<Key> {
    return this.matches.find(game, signal);
  }

  /** Has the relay take nothing from a key for us any more. */
  async block(key: Key): Promise<void> {
    await this.requests.ask('block', { key });
  }

  async unblock(key: Key): Promise<void> {
    await this.requests.ask('unblock', { key });
  }

  /** Has the relay erase what it keeps for us: inbox, cards, retained values, blocked keys. */
  async erase(): Promise<void> {
    await this.requests.ask('erase');
  }

  /** Asks the relay what it can do: the fields of json.md's `capabilities`. */
  capabilities(): Promise<Answer> {
    return this.requests.ask('capabilities');
  }

  /** Renews the authorization of the connection with a token. */
  async authorize(token: string): Promise<void> {
    await this.requests.ask('auth', { token });
  }

  /** Returns the serial of our card, for a pairing string: who has it cannot be made to seal without the card. */
  cardSerial(): Promise<bigint> {
    return this.keyring.serial();
  }

  /** Notes that a contact has a card with at least that serial, as a pairing string says. */
  promiseCard(contact: Key, serial: bigint): Promise<void> {
    return this.contacts.promise(contact, serial);
  }

  /** Forgets which card a contact had: for a `card` error that has an explanation. */
  forgetCard(contact: Key): Promise<void> {
    return this.contacts.forget(contact);
  }

  /** Forgets the key that was seen of a relay: for a `key-mismatch` that has an explanation. */
  forgetRelay(url: string): Promise<void> {
    return forgetKey(this.storage, url);
  }

  /** The relays that are known. */
  get servers(): Server[] {
    return this.known.list();
  }

  /** The relay that is used. */
  get server(): Server {
    return this.known.selected;
  }

  /** Uses another relay, which is in the list of servers. */
  async selectServer(url: string): Promise<void> {
    const before = this.known.selected.url;
    await this.known.select(url);
    if (this.known.selected.url !== before) this.connection.reconnect();
  }

  /** A session begins. */
  private up(session: Session, signal: AbortSignal): void {
    this.session = session;
    signal.addEventListener('abort', () => {
      this.session = undefined;
      this.requests.disconnect();
    });
    const { url } = this.known.selected;
    if (!this.warned && !isPrivate(url)) {
      this.warned = true;
      this.emit('insecure', { url });
    }
    this.requests.connect(session, [...this.publications.rejoin(), ...this.matches.again()]);
    this.outbox.removeOld();
    this.outbox.rewind();
    this.sender.write(session, signal).catch((err: unknown) => {
      if (!signal.aborted) this.emit('error', asError(err));
    });
    session.send(newFrame(Type.nodeInfo, { payload: requestServers }));
    if (!session.legacy) void this.keyring.announce();
    if (session.relay.key !== undefined) {
      void keepAttached(
        this.#options.identity, session.relay.key, this.requests, (err) => this.emit('error', err), signal,
      );
    }
    this.emit('connected', { ...session.relay, url });
  }

  /** Takes a frame. One that is malformed is passed over and told: it may be somebody else's. */
  private async receive(f: Frame, session: Session): Promise<void> {
    try {
      if (isLetter(f.type)) return await this.inbox.receive(f, session);
      switch (f.type) {
        case Type.receipt:
          return await this.sender.receipt(f, session);
        case Type.error:
          return this.sender.refusal(f);
        case Type.response:
          return this.requests.receive(f.payload);
        case Type.message:
        case Type.roomMessage:
          return await this.publications.receive(f);
        case Type.nodeInfo:
          return await this.known.discover(decodeServers(f.payload) ?? []);
      }
    } catch (err) {
      this.emit('error', asError(err));
    }
  }

  private notice(notice: Answer): void {
    if (notice.t === 'gap') this.publications.gap(notice.topic);
    else this.matches.take(notice);
  }

  private async openLetter(f: Frame): Promise<Opened> {
    const keys = f.type === Type.sealed ? await this.keyring.openKeys(decodeSealed(f.payload).keyID) : [];
    const opened = await openFrame(this.#options.identity, keys, f);
    // What is malformed would be left with the relay if that were found later.
    switch (opened.content.type) {
      case ContentType.json:
        checkJSON(opened.content.data);
        break;
      case ContentType.filePart:
        decodePart(opened.content.data);
        break;
      case ContentType.fileControl:
        decodeControl(opened.content.data);
        break;
      case ContentType.groupKey:
        new GroupKey(opened.content.data);
        break;
      default:
        if (opened.content.type > ContentType.groupKey) throw malformed('content of an unknown type');
    }
    return opened;
  }

  private async deliver(a: Arrival): Promise<void> {
    const { type, data } = a.opened.content;
    const from = hex(a.frame.sender);
    switch (type) {
      case ContentType.filePart:
        return this.filesIn.part(from, decodePart(data));
      case ContentType.fileControl: {
        const control = decodeControl(data);
        this.filesOut.hear(from, control);
        if (control.op === 'cancel') this.filesIn.cancelled(from, control.transfer);
        return;
      }
      case ContentType.groupKey:
        // One that is not wanted is done with, all the same.
        return this.groupKeys.take(from, data).catch((err: unknown) => {
          if (!(err instanceof SottoError)) throw err; // of the storage
          this.emit('error', err);
        });
    }
    while (this.listenersOf('message').length === 0) await new Promise<void>((resolve) => this.listening.push(resolve));
    const letter = letterOf(a.frame, a.opened);
    await Promise.all(this.listenersOf('message').map(async (f) => f(letter)));
  }
}

/** A text that is no JSON would have every listener throw, and fill the relay's window for good. */
function checkJSON(data: Bytes): void {
  try {
    JSON.parse(fromUTF8(data) ?? '');
  } catch {
    throw malformed('JSON that is none');
  }
}

/** An offer may wait for a person, and a listener for a file: neither holds up the others. */
function laneOf(f: Frame, { content }: Opened): string {
  switch (content.type) {
    case ContentType.filePart:
      // Nor does an offer hold up the parts of its own file, which are dropped until it was accepted.
      return hex(f.sender) + hex(content.data.subarray(0, 16)) + (isZero(content.data.subarray(16, 20)) ? hex(f.id) : '');
    case ContentType.fileControl:
      return 'files';
    case ContentType.groupKey:
      return 'groups';
  }
  return 'application';
}
