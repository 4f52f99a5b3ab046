/** Returns the listener that it was returned for to rest. */
export type Off = () => void;

/** Listeners by the name of an event, each of which has one value. */
export class Emitter<Events extends { error: Error }> {
  private readonly listeners: { [K in keyof Events]?: Set<(value: Events[K]) => unknown> } = {};

  /** Has f called for each event of that name, until the returned function is called. */
  on<K extends keyof Events>(name: K, f: (value: Events[K]) => unknown): Off {
    const set = (this.listeners[name] ??= new Set());
    set.add(f);
    return () => void set.delete(f);
  }

  /** Has f called once. */
  once<K extends keyof Events>(name: K, f: (value: Events[K]) => unknown): Off {
    const off = this.on(name, (value) => {
      off();
      return f(value);
    });
    return off;
  }

  protected listenersOf<K extends keyof Events>(name: K): ((value: Events[K]) => unknown)[] {
    return [...(this.listeners[name] ?? [])];
  }

  /** Calls the listeners, and does not wait. What one throws is an `error` event. */
  protected emit<K extends keyof Events>(name: K, value: Events[K]): void {
    for (const f of this.listenersOf(name)) {
      void (async () => f(value))().catch((err: unknown) => {
        if (name === 'error') throw err; // unhandled, as there is nobody else to tell
        this.emit('error', (err instanceof Error ? err : new Error(String(err))) as Events['error']);
      });
    }
  }
}
