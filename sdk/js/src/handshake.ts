// A client's side of the handshake (spec brep.md), without I/O.
//
//   challenge        random 32; sender K_r, or zero from a legacy relay; signature zero
//   answer, v1       challenge 32; signature over the payload
//   answer, v2       challenge 32 ‖ nonce 32 ‖ K_r 32 ‖ role u8; signed
//   confirmation, v1 01; signature zero
//   confirmation, v2 02 ‖ features u32; sender K_r; signed

import { type Bytes, concat, equal, hex, isZero, random, utf8, view } from './bytes.js';
import type { Identity, Key } from './crypto/identity.js';
import { checkKey, isSigned } from './crypto/verify.js';
import { malformed, SottoError } from './errors.js';
import { type Frame, newFrame, Type } from './wire/frame.js';

const roleClient = Uint8Array.of(0);

/** Whom a connection leads to. */
export interface RelayInfo {
  /** The key that the relay proved to have; undefined in v1, where none is proved. */
  key?: Key;
  /** Of the handshake. A session after version 1 is a legacy one. */
  version: 1 | 2;
  /** The relay says that its inbox survives its end. */
  durable: boolean;
  /** No key was expected: the time to compare fingerprints. */
  firstContact: boolean;
}

export interface HandshakeOptions {
  identity: Identity;
  /** The key that the relay must have, pinned or seen before. Such a relay is never spoken to in v1. */
  expect?: Bytes;
  /** Allows v1, in which the relay proves nothing and has us sign 32 bytes of its choice. */
  allowLegacy: boolean;
}

/** One handshake. A bad message changes nothing, and is an error. */
export class Handshake {
  /** Set at the end. */
  relay?: RelayInfo;

  private step: 'challenge' | 'v1' | { relay: Bytes; challenge: Bytes; nonce: Bytes } = 'challenge';

  constructor(private readonly options: HandshakeOptions, private readonly newNonce = () => random(32)) {}

  /** Takes a frame that came in, and returns the one to send, if there is one. */
  async receive(f: Frame): Promise<Frame | undefined> {
    if (this.relay !== undefined) throw new SottoError('denied', 'the handshake is over');
    if (f.type !== Type.handshake) throw new SottoError('not-authenticated', 'not a handshake message');
    if (this.step === 'challenge') return this.challenge(f);
    this.relay = this.step === 'v1' ? confirmationV1(f) : await this.confirmation(f, this.step);
    return undefined;
  }

  private async challenge(f: Frame): Promise<Frame> {
    if (f.payload.length !== 32 || !isZero(f.signature)) throw malformed('the first message is not a challenge');
    const { identity, expect, allowLegacy } = this.options;
    const challenge = f.payload.slice();
    if (isZero(f.sender)) {
      if (!allowLegacy || expect !== undefined) {
        throw new SottoError('legacy-relay', 'the relay speaks handshake v1 only, which is not allowed here');
      }
      const signature = await identity.sign(challenge);
      this.step = 'v1';
      return newFrame(Type.handshake, { sender: identity.public, signature, payload: challenge });
    }
    const relay = f.sender.slice();
    if (expect !== undefined && !equal(expect, relay)) {
      throw new SottoError('key-mismatch', `the relay's key is ${hex(relay)}, expected ${hex(expect)}`);
    }
    checkKey(relay);
    const nonce = this.newNonce();
    const signature = await identity.sign(
      concat(utf8('sotto handshake v2 client\x00'), relay, challenge, nonce, identity.public, roleClient),
    );
    this.step = { relay, challenge, nonce };
    return newFrame(Type.handshake, {
      sender: identity.public, signature, payload: concat(challenge, nonce, relay, roleClient),
    });
  }

  private async confirmation(f: Frame, x: { relay: Bytes; challenge: Bytes; nonce: Bytes }): Promise<RelayInfo> {
    if (isConfirmationV1(f)) throw new SottoError('denied', 'the relay went back to v1 after it announced v2');
    if (f.payload.length !== 5 || f.payload[0] !== 2) throw malformed('not a confirmation');
    if (!equal(f.sender, x.relay)) throw new SottoError('not-authenticated', 'confirmed by another relay');
    const features = f.payload.slice(1);
    const signed = concat(
      utf8('sotto handshake v2 relay\x00'), x.challenge, x.nonce, this.options.identity.public, x.relay, roleClient,
      features,
    );
    if (!(await isSigned(x.relay, signed, f.signature))) {
      throw new SottoError('bad-signature', 'the confirmation is not signed by the relay');
    }
    return {
      key: hex(x.relay),
      version: 2,
      durable: (view(features).getUint32(0) & 1) !== 0,
      firstContact: this.options.expect === undefined,
    };
  }
}

function confirmationV1(f: Frame): RelayInfo {
  if (!isConfirmationV1(f)) throw malformed('not a confirmation');
  return { version: 1, durable: false, firstContact: false };
}

function isConfirmationV1(f: Frame): boolean {
  return f.payload.length === 1 && f.payload[0] === 1;
}
