// REQUESTs and their answers (spec native.md, "Frame types"): the verbs of json.md.

import { fromUTF8, utf8 } from './bytes.js';
import { malformed, relayCodeNamed, SottoError } from './errors.js';
import { untilAborted } from './outbox.js';
import type { Session } from './session.js';
import { newFrame, Type } from './wire/frame.js';

/** The fields of an answer. */
export type Answer = Record<string, unknown>;

const maxRequest = 64 << 10;
const maxOpen = 1000;

/** A request that is asked for by itself after a login. */
export interface Ask {
  verb: string;
  fields: Answer;
  settle(answer: Answer | undefined, err?: SottoError): void;
}

interface OpenRequest {
  body: Answer;
  standing: boolean; // asked by itself, and anew after each login
  settle: Ask['settle'];
}

/**
 * Requests of a client. One whose connection ends before the answer is sent again after
 * the next login: doing any of the verbs twice is as good as once.
 */
export class Requests {
  private readonly open = new Map<number, OpenRequest>();
  private last = 0;
  private session: Session | undefined;
  private error: SottoError | undefined;

  /** What the relay says unasked goes to onNotice. */
  constructor(private readonly onNotice: (notice: Answer) => void) {}

  /** Sends a request, and waits for its answer, and for a connection before if there is none. */
  async ask(verb: string, fields: Answer = {}, signal?: AbortSignal): Promise<Answer> {
    signal?.throwIfAborted();
    if (this.error !== undefined) throw this.error;
    if (this.session?.legacy) throw new SottoError('legacy-session', 'the relay speaks handshake v1 only');
    if (this.open.size >= maxOpen) throw new SottoError('quota', 'too many open requests');
    const number = ++this.last;
    const body = { t: verb, ...fields, req: number };
    if (utf8(JSON.stringify(body)).length > maxRequest) throw new SottoError('too-large', 'request');
    const answer = new Promise<Answer>((resolve, reject) => {
      this.open.set(number, { body, standing: false, settle: (a, err) => (a === undefined ? reject(err!) : resolve(a)) });
    });
    if (this.session !== undefined) send(this.session, body);
    try {
      return await untilAborted(answer, signal);
    } finally {
      this.open.delete(number);
    }
  }

  /** Uses a session from now on: first for what opens it, then for what waits. */
  connect(session: Session, first: Ask[]): void {
    this.session = session;
    const waiting = [...this.open.values()];
    if (session.legacy) {
      for (const r of waiting) r.settle(undefined, new SottoError('legacy-session', 'the relay speaks handshake v1 only'));
      return;
    }
    for (const { verb, fields, settle } of first) {
      const number = ++this.last;
      const body = { t: verb, ...fields, req: number };
      const once: Ask['settle'] = (answer, err) => {
        this.open.delete(number);
        settle(answer, err);
      };
      this.open.set(number, { body, standing: true, settle: once });
      send(session, body);
    }
    for (const r of waiting) send(session, r.body);
  }

  /** The session has ended. */
  disconnect(): void {
    this.session = undefined;
    for (const [number, r] of this.open) if (r.standing) this.open.delete(number);
  }

  /** Takes the payload of a RESPONSE. */
  receive(payload: Uint8Array): void {
    let answer: unknown;
    try {
      answer = JSON.parse(fromUTF8(payload) ?? '');
    } catch {
      answer = undefined;
    }
    if (typeof answer !== 'object' || answer === null || Array.isArray(answer)) throw malformed('RESPONSE is no object');
    const { req, ok, code, msg } = answer as Answer;
    if (req === undefined) return this.onNotice(answer as Answer);
    const request = typeof req === 'number' ? this.open.get(req) : undefined;
    if (ok === true) request?.settle(answer as Answer);
    else request?.settle(undefined, new SottoError(relayCodeNamed(String(code)) ?? 'internal', String(msg ?? code), true));
  }

  /** Ends all that wait. */
  close(err: SottoError): void {
    this.error = err;
    for (const r of [...this.open.values()]) r.settle(undefined, err);
  }
}

function send(session: Session, body: Answer): void {
  session.send(newFrame(Type.request, { payload: utf8(JSON.stringify(body)) }));
}

/** Returns a field of an answer that has to be a string. */
export function textField(answer: Answer, name: string): string {
  const v = answer[name];
  if (typeof v !== 'string') throw malformed(`answer without ${name}`);
  return v;
}
