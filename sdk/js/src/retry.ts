import { sleep } from './pacer.js';

/** The pauses between attempts to connect. */
export class Retry {
  private over: AbortController | undefined; // ends a pause

  /** Before attempt n, from 0, one waits a random time of at most min·2ⁿ and max ms. */
  constructor(readonly min = 500, readonly max = 30_000) {}

  /** Returns a random time, so that clients that lost their relay together don't come back together. */
  backoff(attempt: number): number {
    return Math.random() * Math.min(this.max, this.min * 2 ** Math.min(attempt, 30));
  }

  /** Waits so many ms, or until the signal is aborted, or somebody is in a hurry: a browser that is online again. */
  async pause(ms: number, signal: AbortSignal): Promise<void> {
    const over = (this.over = new AbortController());
    const stop = onEvents(['online'], () => over.abort());
    await sleep(ms, AbortSignal.any([over.signal, signal])).catch(() => undefined);
    stop();
  }

  /** Ends a pause. */
  hurry(): void {
    this.over?.abort();
  }
}

/** Calls f at events of a browser, which Node has not, until the returned function is called. */
export function onEvents(types: string[], f: () => void): () => void {
  if (typeof globalThis.addEventListener !== 'function') return () => undefined;
  for (const type of types) globalThis.addEventListener(type, f);
  return () => {
    for (const type of types) globalThis.removeEventListener(type, f);
  };
}
