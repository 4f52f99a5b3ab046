// The Go relay and the Go client, as processes on this machine.

import { type ChildProcess, execFile, type PromiseWithChild, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { WebSocket as Socket } from 'ws';
import { Client, type ClientOptions, Identity, type WebSocketClass } from '../src/index.js';

const program = fileURLToPath(new URL('../sotto', import.meta.url));

export const WebSocket = Socket as unknown as WebSocketClass;

/** Returns a directory that is gone at the end of the process. */
export function scratch(): string {
  const dir = mkdtempSync(join(tmpdir(), 'sotto-js-'));
  process.on('exit', () => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

/** A relay that runs. */
export interface Relay {
  url: string; // over WebSocket
  urls: string[]; // of all that it listens on
  key: string;
  /** Ends it: in order, or as a power cut would. */
  stop(signal?: 'SIGTERM' | 'SIGKILL'): Promise<void>;
}

/**
 * Returns a port that is free and stays so while no relay has it. One that the system
 * chooses may be anybody's a moment later: these are below those.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = 12_000 + Math.floor(Math.random() * 20_000);
    const server = createServer();
    const free = await new Promise<boolean>((resolve) => {
      server.once('error', () => resolve(false)).listen(port, '127.0.0.1', () => resolve(true));
    });
    if (!free) continue;
    await new Promise((resolve) => server.close(resolve));
    return port;
  }
}

/** Starts a relay on a port of its own, or on one of freePort, on which it can be started again. */
export async function startRelay(args: string[] = [], port = 0): Promise<Relay> {
  const ready = join(scratch(), 'ready');
  const child: ChildProcess = spawn(
    program,
    ['serve', '--listen', `ws://127.0.0.1:${port}`, '--ready', ready, '--drain', '1s', '--log-level', 'warn', ...args],
    { stdio: ['ignore', 'ignore', 'inherit'] },
  );
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const kill = () => child.kill('SIGKILL');
  process.once('exit', kill);
  for (let n = 0; !existsSync(ready); n++) {
    if (n > 3000 || child.exitCode !== null) throw new Error('the relay does not start');
    await wait(20);
  }
  const { key, listeners } = JSON.parse(readFileSync(ready, 'utf8')) as { key: string; listeners: { url: string }[] };
  return {
    key,
    url: listeners[0]!.url,
    urls: listeners.map((l) => l.url),
    stop: async (signal = 'SIGTERM') => {
      process.off('exit', kill);
      child.kill(signal);
      await exited;
    },
  };
}

/** A Go client with an identity of its own. */
export class GoClient {
  private readonly dir = scratch();

  constructor(private readonly relay: Relay) {}

  /** Runs a command of it, with its files and its relay. */
  async run(command: string, ...args: string[]): Promise<string> {
    return (await this.start(command, ...args)).stdout;
  }

  /** Starts a command, whose process the result has too. */
  start(command: string, ...args: string[]): PromiseWithChild<{ stdout: string; stderr: string }> {
    const files = ['--identity', join(this.dir, 'identity')];
    if (command !== 'id') files.push('--relay', this.relay.url, '--known-relays', join(this.dir, 'relays'));
    const env = { ...process.env, XDG_CONFIG_HOME: this.dir, HOME: this.dir };
    return promisify(execFile)(program, [command, ...files, ...args], { env, timeout: 120_000 });
  }

  /** Receives until so many lines are shown, and returns what is. */
  async receive(lines: number, ...args: string[]): Promise<string> {
    const run = this.start('recv', '--follow', ...args);
    let shown = '';
    const enough = new Promise<void>((resolve) => run.child.stdout!.on('data', (s: string) => {
      shown += s;
      if (shown.split('\n').length > lines) resolve();
    }));
    await Promise.race([enough, run]);
    run.child.kill('SIGINT');
    return (await run).stdout;
  }

  /** Its key. */
  async key(): Promise<string> {
    const told = JSON.parse(await this.run('id', '--json')) as Record<string, string>;
    return told.address ?? told.key ?? told.public!;
  }

  /** Makes an identity file of a text, before the first command. */
  useIdentity(text: string): void {
    writeFileSync(join(this.dir, 'identity'), text, { mode: 0o600 });
  }

  /** The directory of its files. */
  path(name: string): string {
    return join(this.dir, name);
  }
}

const clients = new Set<Client>();

/** Returns a client with a fresh identity, unless one is given, that is connected. */
export async function newClient(relay: Relay, options: Partial<ClientOptions> = {}): Promise<Client> {
  const c = idleClient(relay, { identity: await Identity.generate(), ...options });
  await c.connect();
  return c;
}

/** Returns a client that is not connected. */
export function idleClient(relay: Relay, options: Partial<ClientOptions> & { identity: Identity }): Client {
  const c = new Client({ url: relay.url, WebSocket, backoff: { min: 20, max: 200 }, ...options });
  clients.add(c);
  return c;
}

/** Closes the clients that were made. */
export async function closeClients(): Promise<void> {
  await Promise.all([...clients].map((c) => c.close()));
  clients.clear();
}

/** Returns the next values of an event, once there are so many. */
export function next<T>(listen: (f: (value: T) => void) => () => void, n = 1): Promise<T[]> {
  return new Promise((resolve, reject) => {
    const got: T[] = [];
    const late = setTimeout(() => reject(new Error(`only ${got.length} of ${n} came`)), 60_000);
    const off = listen((value) => {
      got.push(value);
      if (got.length < n) return;
      clearTimeout(late);
      off();
      resolve(got);
    });
  });
}

/** Waits until something holds. */
export async function until(holds: () => boolean): Promise<void> {
  for (let n = 0; !holds(); n++) {
    if (n > 6000) throw new Error('it does not come to hold');
    await wait(10);
  }
}
