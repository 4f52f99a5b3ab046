// The relays that a client knows, and the one that it uses.

import type { Key } from './crypto/identity.js';
import { malformed } from './errors.js';
import type { Storage } from './storage.js';
import { addressOf } from './trust.js';
import type { ServerInfo } from './wire/nodeinfo.js';

/** A relay. */
export interface Server {
  url: string;
  /** The key that it must have. Of one that was discovered it is another relay's word. */
  key?: Key;
  /** It was not configured, but told of by a relay. Such a one is used only when it is selected. */
  discovered: boolean;
}

const most = 200; // that are discovered

export class Servers {
  private all: Server[];
  private current: Server;

  constructor(configured: { url: string; key?: Key }[], private readonly storage: Storage, private readonly onChange: () => void) {
    this.all = configured.map(({ url, key }) => ({ url: checked(url), ...(key && { key }), discovered: false }));
    if (this.all.length === 0) throw malformed('no relay to connect to');
    this.current = this.all[0]!;
  }

  /** Reads what was discovered and selected before. */
  async load(): Promise<void> {
    const kept = (await this.storage.get('servers')) as { discovered: Server[]; selected: string } | undefined;
    try {
      for (const s of kept?.discovered ?? []) if (this.find(checked(s.url)) === undefined) this.all.push(s);
    } catch {
      // It is damaged. What was configured serves.
    }
    this.current = (kept && this.find(kept.selected)) ?? this.current;
  }

  list(): Server[] {
    return this.all.map((s) => ({ ...s }));
  }

  get selected(): Server {
    return { ...this.current };
  }

  /** Selects a relay that is in the list, by its URL. */
  async select(url: string): Promise<void> {
    const s = this.find(url);
    if (s === undefined) throw malformed('not in the list of servers');
    if (s === this.current) return;
    this.current = s;
    await this.changed();
  }

  /** Returns the configured relay at an address, if it is one. */
  configured(address: string): Server | undefined {
    const s = this.find(address);
    return s?.discovered === false ? s : undefined;
  }

  /** Adds what a relay told of. What is no WebSocket URL is passed over. */
  async discover(found: ServerInfo[]): Promise<void> {
    let news = false;
    for (const { address, key } of found) {
      if (this.find(address) !== undefined || this.all.filter((s) => s.discovered).length >= most) continue;
      try {
        this.all.push({ url: checked(address), ...(key && { key }), discovered: true });
        news = true;
      } catch {
        continue; // of another medium
      }
    }
    if (news) await this.changed();
  }

  private find(url: string): Server | undefined {
    return this.all.find((s) => s.url === url || addressOf(s.url) === safeAddressOf(url));
  }

  private async changed(): Promise<void> {
    await this.storage.set('servers', {
      discovered: this.all.filter((s) => s.discovered),
      selected: this.current.url,
    });
    this.onChange();
  }
}

function checked(url: string): string {
  const { protocol } = parse(url);
  if (protocol !== 'ws:' && protocol !== 'wss:') throw malformed('a relay has a ws:// or wss:// URL');
  return url;
}

function parse(url: string): URL {
  try {
    return new URL(url);
  } catch {
    throw malformed('not a URL');
  }
}

function safeAddressOf(url: string): string | undefined {
  try {
    return addressOf(url);
  } catch {
    return undefined;
  }
}

/** Says whether a connection to url is encrypted, or stays on this machine. */
export function isPrivate(url: string): boolean {
  const { protocol, hostname } = new URL(url);
  return protocol === 'wss:' || hostname === 'localhost' || hostname === '[::1]' || /^127\./.test(hostname);
}
