// What we send, from content to receipt.

import { type Bytes, concat, equal, hex } from './bytes.js';
import type { Contacts } from './contacts.js';
import { type Content, ContentType } from './crypto/content.js';
import { encrypt } from './crypto/encrypted.js';
import { checkedKeyBytes, type Identity, type Key, newID } from './crypto/identity.js';
import { seal } from './crypto/seal.js';
import { signContent } from './crypto/signed.js';
import { isSigned } from './crypto/verify.js';
import { malformed, SottoError } from './errors.js';
import { Outbox, type Pending, reaches, type Status, untilAborted } from './outbox.js';
import { Pacer, sleep } from './pacer.js';
import type { Session } from './session.js';
import { Flag, type Frame, maxPayload, newFrame, Type } from './wire/frame.js';
import {
  ackToSign, decodeError, decodeReceipt, encodePublication, frameToSign, ReceiptStatus,
} from './wire/payload.js';

/** How a message is sent. */
export interface SendOptions {
  /** Sealed for its recipient; or `signed`, readable by relays; or `clear`, not even signed, of bytes only. */
  protection?: 'sealed' | 'signed' | 'clear';
  /** When `send` returns; `handed` if not given. Of a legacy relay nothing beyond `written` is heard. */
  until?: Status;
  /** The relay hands it over now, or refuses it with `not-here`. */
  ephemeral?: boolean;
  /** An abort ends the wait, and the message is not sent again. It may have arrived. */
  signal?: AbortSignal;
}

/** How far a message has come. */
export interface Receipt {
  id: string; // hex
  to: Key;
  status: Status;
}

export interface SenderOptions {
  identity: Identity;
  contacts: Contacts;
  outbox: Outbox;
  /** Returns the X25519 key of a contact that was given by hand, as by a user of MERK-BREP. */
  x25519(contact: Key): Bytes | undefined;
  onReceipt(r: Receipt): void;
  onRefused(r: Receipt, err: SottoError): void;
}

const maxBuffered = 1 << 20; // in the socket

export class Sender {
  private readonly pacer = new Pacer();
  private readonly turns = new Map<Key, Promise<unknown>>(); // by recipient, so that the order is kept

  constructor(private readonly options: SenderOptions) {}

  /**
   * Sends a content, and waits until it has come far enough. Those to one recipient stay
   * in order. If `keep`, the storage has it until then.
   */
  async send(to: Key, content: Content, o: SendOptions, keep = o.ephemeral !== true): Promise<Receipt> {
    const recipient = checkedKeyBytes(to);
    const turn = this.inTurn(to, async () => {
      o.signal?.throwIfAborted();
      const frame = await this.prepare(to, recipient, content, o);
      const added = await this.options.outbox.add(frame, keep, o.signal);
      if (o.signal?.aborted) this.options.outbox.fail(added, givenUp());
      return added;
    });
    const p = await untilAborted(turn, o.signal);
    if (content.type <= ContentType.file) this.report(p);
    await this.reach(p, o.until ?? 'handed', o.signal);
    return receiptOf(p);
  }

  /** Sends a publication, and waits for the relay's receipt. */
  async publish(type: number, name: string, content: Bytes, flags: number): Promise<void> {
    const id = newID();
    const payload = encodePublication(name, content);
    const signature = await this.options.identity.sign(frameToSign(type, id, payload));
    const frame = newFrame(type, { flags: flags | Flag.receipt, id, payload, signature });
    await this.reach(await this.options.outbox.add(checkSize(frame), false), 'handed');
  }

  private async inTurn<T>(to: Key, f: () => Promise<T>): Promise<T> {
    const turn = (this.turns.get(to) ?? Promise.resolve()).then(f);
    const settled = turn.catch(() => undefined);
    this.turns.set(to, settled);
    try {
      return await turn;
    } finally {
      if (this.turns.get(to) === settled) this.turns.delete(to);
    }
  }

  /** Makes the frame, once for all times that it is sent. */
  private async prepare(to: Key, recipient: Bytes, content: Content, o: SendOptions): Promise<Frame> {
    const flags = Flag.receipt | (o.ephemeral ? Flag.ephemeral : 0);
    const frame = (type: number, fields: Partial<Frame>) => checkSize(newFrame(type, { flags, id: newID(), ...fields }));
    const { identity, contacts } = this.options;
    if (content.data.length > maxPayload) throw new SottoError('too-large', 'more than 4 MiB');
    switch (o.protection) {
      case 'clear':
        if (content.type > ContentType.json) throw malformed('a file in the clear would lose its name');
        return frame(Type.data, { payload: concat(recipient, content.data) });
      case 'signed':
        return frame(Type.signedData, await signContent(identity, recipient, content));
    }
    const x25519 = this.options.x25519(to);
    if (x25519 !== undefined) {
      if (await contacts.hasCard(to)) throw new SottoError('card', `${to} has a card, and is to be sent less than sealed`);
      return frame(Type.encryptedData, await encrypt(identity, recipient, x25519, content));
    }
    const id = newID();
    return frame(Type.sealed, { id, ...(await seal(identity, await contacts.sealKey(to, o.signal), id, content)) });
  }

  /** Tells what becomes of a message, from now on. */
  private report(p: Pending): void {
    p.watchers.add(() => {
      const r = receiptOf(p);
      if (p.error === undefined) this.options.onReceipt(r);
      else if (p.error.byRelay) this.options.onRefused(r, p.error);
    });
  }

  private async reach(p: Pending, until: Status, signal?: AbortSignal): Promise<void> {
    let watch!: () => void;
    const reached = new Promise<void>((resolve, reject) => {
      watch = () => {
        if (p.error !== undefined) reject(p.error);
        else if (reaches(p.status, until)) resolve();
      };
      p.watchers.add(watch);
      watch(); // it may have happened already
    });
    try {
      await untilAborted(reached, signal);
    } catch (err) {
      if (signal?.aborted) this.options.outbox.fail(p, givenUp());
      throw err;
    } finally {
      p.watchers.delete(watch);
    }
  }

  /** Sends what is pending, at the pace that relays allow, until the signal is aborted. */
  async write(session: Session, signal: AbortSignal): Promise<void> {
    const { outbox } = this.options;
    for (;;) {
      const p = await outbox.take(signal);
      if (session.legacy && (p.frame.type > Type.encryptedData || p.frame.flags & Flag.ephemeral)) {
        outbox.fail(p, new SottoError('legacy-session', 'not possible with a relay that speaks handshake v1'));
        continue;
      }
      await this.pacer.wait(p.frame.payload.length, signal);
      while (session.buffered > maxBuffered) await sleep(20, signal);
      if (!outbox.has(p)) continue; // any more
      session.send(p.frame);
      if (session.legacy) {
        outbox.advance(p, 'written');
        outbox.settle(p);
      }
    }
  }

  /** Takes a RECEIPT. */
  async receipt(f: Frame, session: Session): Promise<void> {
    const { outbox } = this.options;
    const r = decodeReceipt(f.payload);
    const p = outbox.find(r.id);
    if (p === undefined) return;
    const once = !isLasting(p.frame); // such a message is handed over or not at all
    switch (r.status) {
      case ReceiptStatus.handed:
        outbox.advance(p, 'handed');
        if (once) outbox.settle(p);
        return;
      case ReceiptStatus.stored:
        outbox.advance(p, 'stored');
        // Without a durable inbox it is kept until it was read: the relay may lose it.
        if (once || session.relay.durable) outbox.settle(p);
        return;
      case ReceiptStatus.acknowledged: {
        const signed = ackToSign(this.options.identity.public, r.id);
        if (!equal(p.frame.payload.subarray(0, 32), r.recipient!) || !(await isSigned(r.recipient!, signed, r.signature!))) {
          throw new SottoError('bad-signature', 'an acknowledgement that is not by the recipient');
        }
        outbox.advance(p, 'read');
        return outbox.settle(p);
      }
    }
    outbox.fail(p, new SottoError(r.code!, r.reason || r.code!, true));
  }

  /** Takes an ERROR. */
  refusal(f: Frame): void {
    const e = decodeError(f.flags, f.payload);
    const p = e.id && this.options.outbox.find(e.id);
    if (p !== undefined) this.options.outbox.fail(p, new SottoError(e.code, e.reason || e.code, true));
  }
}

const givenUp = () => new SottoError('aborted', 'given up');

function receiptOf(p: Pending): Receipt {
  return { id: hex(p.frame.id), to: hex(p.frame.payload.subarray(0, 32)), status: p.status };
}

/** Says whether a relay keeps such a message until somebody has acknowledged it. */
function isLasting(f: Frame): boolean {
  return f.type !== Type.publish && f.type !== Type.roomSend && (f.flags & Flag.ephemeral) === 0;
}

function checkSize(f: Frame): Frame {
  if (f.payload.length > maxPayload) throw new SottoError('too-large', 'more than 4 MiB, padded and sealed');
  return f;
}
