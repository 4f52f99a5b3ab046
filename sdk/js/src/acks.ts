// Acknowledgements, several in a frame.

import { type Bytes, concat } from './bytes.js';
import type { Identity } from './crypto/identity.js';
import { isKept } from './inbox.js';
import type { Session } from './session.js';
import { Flag, type Frame, newFrame, Type } from './wire/frame.js';
import { ackToSign, encodeAck } from './wire/payload.js';

const together = 64;
const patience = 5; // ms in which others may come

export class Acks {
  private waiting: Bytes[] = [];
  private session: Session | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly identity: Identity) {}

  /** Acknowledges a frame that a session brought, if the relay keeps it until then. */
  async add(f: Frame, session: Session): Promise<void> {
    if (session.legacy || !isKept(f)) return;
    const wanted = (f.flags & Flag.receipt) !== 0;
    const signature = wanted ? await this.identity.sign(ackToSign(f.sender, f.id)) : new Uint8Array(64);
    if (session !== this.session) this.flush();
    this.session = session;
    this.waiting.push(encodeAck(f.sender, f.id, signature));
    if (this.waiting.length >= together) this.flush();
    else this.timer ??= setTimeout(() => this.flush(), patience);
  }

  /** Sends what waits. */
  flush(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    if (this.waiting.length > 0) this.session!.send(newFrame(Type.ack, { payload: concat(...this.waiting) }));
    this.waiting = [];
  }
}
