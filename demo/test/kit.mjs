// A relay that serves the demo, and a browser to open it in.

import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

/** Where Debian's package has it. */
export const browser = process.env.CHROMIUM ?? '/usr/bin/chromium';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** Returns a directory that is gone at the end of the process. */
export function scratch() {
  const dir = mkdtempSync(join(tmpdir(), 'sotto-demo-'));
  process.on('exit', () => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

/** Builds the program, and returns where it is. */
export function buildSotto() {
  const program = join(scratch(), 'sotto');
  execFileSync('go', ['build', '-o', program, './cmd/sotto'], { cwd: root, stdio: 'inherit' });
  return program;
}

/** A relay with the demo, at one port and with one directory across restarts. */
export class Relay {
  #child;
  #data = scratch();

  constructor(program, args = []) {
    this.program = program;
    this.args = args;
  }

  async start() {
    this.port ??= await freePort();
    const ready = join(this.#data, 'ready');
    rmSync(ready, { force: true });
    const args = ['serve', '--demo', '--listen', `ws://127.0.0.1:${this.port}`, '--data', join(this.#data, 'data'),
      '--ready', ready, '--drain', '200ms', '--log-level', 'error', ...this.args];
    const child = (this.#child = spawn(this.program, args, { stdio: ['ignore', 'ignore', 'inherit'] }));
    process.once('exit', () => child.kill('SIGKILL'));
    for (let n = 0; !existsSync(ready); n++) {
      if (n > 3000 || child.exitCode !== null) throw new Error('the relay does not start');
      await wait(20);
    }
    this.key = JSON.parse(readFileSync(ready, 'utf8')).key;
    this.url = `http://127.0.0.1:${this.port}/`;
  }

  async stop() {
    const ended = new Promise((resolve) => this.#child.once('exit', resolve));
    this.#child.kill('SIGTERM');
    await ended;
  }
}

/**
 * Returns a port that is free and stays so while no relay has it. One that the system
 * chooses may be anybody's a moment later: these are below those.
 */
async function freePort() {
  for (;;) {
    const port = 12_000 + Math.floor(Math.random() * 20_000);
    const s = createServer();
    const free = await new Promise((resolve) => s.once('error', () => resolve(false)).listen(port, '127.0.0.1', () => resolve(true)));
    if (!free) continue;
    await new Promise((resolve) => s.close(resolve));
    return port;
  }
}

/** Starts the browser, which talks to nobody by itself. */
export function launch() {
  return chromium.launch({
    executablePath: browser,
    timeout: 120_000,
    args: [
      '--no-sandbox', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-gpu', '--disable-quic',
      '--disable-default-apps', '--no-first-run', '--disable-domain-reliability', '--disable-client-side-phishing-detection',
      '--no-proxy-server', '--host-resolver-rules=MAP far.test 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
    ],
  });
}

/** Somebody with a browser profile of his own. Faults of the page are noted. */
export class Person {
  faults = [];
  /** What the page has asked last, and whether the answer is yes. */
  asked = '';
  agrees = true;
  /** What goes over the wire from here, once it is set. */
  sent;

  static async come(chromium, relay, options = {}) {
    const p = new Person();
    p.relay = relay;
    p.context = await chromium.newContext({ viewport: { width: 1280, height: 800 }, acceptDownloads: true, ...options });
    p.context.setDefaultTimeout(90_000);
    await p.open();
    p.key = await p.keyOf();
    return p;
  }

  /** Opens the page, and waits until it is connected. */
  async open() {
    const page = (this.page = await this.context.newPage());
    page.on('pageerror', (e) => this.faults.push(`error: ${e.message}`));
    page.on('console', (m) => {
      if (m.type() === 'error' && !/WebSocket connection|ERR_CONNECTION_REFUSED/.test(m.text())) this.faults.push(`console: ${m.text()}`);
    });
    page.on('request', (r) => {
      const { protocol, hostname } = new URL(r.url());
      if (hostname !== '127.0.0.1' && protocol !== 'blob:' && protocol !== 'data:') this.faults.push(`request: ${r.url()}`);
    });
    page.on('websocket', (ws) => ws.on('framesent', (f) => this.sent?.push(Buffer.from(f.payload))));
    page.on('dialog', (d) => {
      this.asked = d.message();
      return this.agrees ? d.accept() : d.dismiss();
    });
    await page.goto(this.relay.url);
    await this.connected();
  }

  /** Takes the network away, or gives it back: what is sent is lost, and connections stay open. */
  offline(away) {
    return this.context.setOffline(away); // which has the browser emulate it
  }

  connected() {
    return this.page.locator('#link[data-link="connected"]').waitFor();
  }

  async keyOf() {
    await this.go('me');
    return this.page.locator('#my-key').textContent();
  }

  /** Chooses a page of the application, and waits until it is shown. */
  async go(name) {
    await this.page.evaluate((hash) => new Promise((resolve) => {
      if (location.hash === hash) return resolve();
      addEventListener('hashchange', resolve, { once: true }); // which the application hears first
      location.hash = hash;
    }).then(() => undefined), `#/${name}`);
  }

  async add(other, name) {
    await this.go('chats');
    await this.page.getByLabel('Pairing link or key').fill(other.key);
    await this.page.getByLabel('Name').fill(name);
    await this.page.getByRole('button', { name: 'Add', exact: true }).click();
    await this.page.getByRole('heading', { name }).waitFor();
  }

  async say(text) {
    await this.page.getByLabel('Message', { exact: true }).fill(text);
    await this.page.keyboard.press('Enter');
  }

  /** Waits for a message with a text, and for what is said about it. */
  async sees(text, state = '') {
    await this.page.locator('.messages li').filter({ hasText: text }).filter({ hasText: state }).first().waitFor();
  }
}
