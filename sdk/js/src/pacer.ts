import { untilAborted } from './outbox.js';

/** Lets through so much a second, and so much at once. */
class Bucket {
  private level: number;
  private at = Date.now();

  constructor(private readonly rate: number, private readonly burst: number) {
    this.level = burst;
  }

  /** Takes n, and returns after how many ms that is allowed. */
  take(n: number): number {
    const now = Date.now();
    const passed = Math.max(0, now - this.at); // the clock may be put back
    this.level = Math.min(this.burst, this.level + (passed / 1000) * this.rate) - n;
    this.at = now;
    return Math.max(0, (-this.level / this.rate) * 1000);
  }
}

/**
 * Keeps to what relays allow by default: 200 messages and 8 MiB a second. A relay counts
 * when messages come in, so the bursts stay well below its own.
 */
export class Pacer {
  private readonly messages: Bucket;
  private readonly bytes = new Bucket(7 << 20, 16 << 20);

  constructor(rate = 180, burst = 128) {
    this.messages = new Bucket(rate, burst);
  }

  /** Waits until a frame of size bytes may be sent. */
  async wait(size: number, signal: AbortSignal): Promise<void> {
    const ms = Math.max(this.messages.take(1), this.bytes.take(size));
    if (ms > 0) await sleep(ms, signal);
  }
}

/** Waits. An abort ends that with its reason. */
export async function sleep(ms: number, signal: AbortSignal): Promise<void> {
  let timer: ReturnType<typeof setTimeout>;
  const time = new Promise<void>((resolve) => (timer = setTimeout(resolve, ms)));
  try {
    await untilAborted(time, signal);
  } finally {
    clearTimeout(timer!);
  }
}
