// Clients behind a network that cuts, and a relay that is killed and restarted: every
// message arrives once, in order.

import assert from 'node:assert/strict';
import { connect, createServer, type Server as NetServer, type Socket } from 'node:net';
import { after, before, test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import { Client, Identity, MemoryStorage } from '../src/index.js';
import { freePort, type Relay, scratch, startRelay, WebSocket } from './relay.js';

/** Passes connections on, and cuts them. */
class Network {
  private readonly sockets = new Set<Socket>();
  private constructor(private readonly server: NetServer) {}

  static async to(port: number): Promise<Network> {
    const server = createServer();
    const n = new Network(server);
    server.on('connection', (from) => {
      const there = connect(port, '127.0.0.1');
      for (const [a, b] of [[from, there], [there, from]] as const) {
        n.sockets.add(a);
        a.on('error', () => undefined);
        a.on('close', () => {
          n.sockets.delete(a);
          b.destroy();
        });
        a.pipe(b);
      }
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return n;
  }

  get url(): string {
    return `ws://127.0.0.1:${(this.server.address() as { port: number }).port}`;
  }

  cut(): void {
    for (const s of this.sockets) s.destroy();
  }

  close(): void {
    this.cut();
    this.server.close();
  }
}

/** A storage that is there for the next client. */
class Disk extends MemoryStorage {
  override readonly persistent: boolean = true;
}

const messages = 300;
const seconds = 8;

let relay: Relay;
let network: Network;
const data = scratch();

before(async () => {
  const port = await freePort();
  relay = await startRelay(['--data', data], port);
  network = await Network.to(port);
});

after(async () => {
  network.close();
  await relay.stop();
});

test('nothing is lost and nothing comes twice, though connections are cut, and relay and clients restarted', { timeout: 240_000 }, async () => {
  const seed = Date.now() % 1_000_000;
  let state = seed;
  const random = () => (state = (state * 16807) % 2147483647) / 2147483647;
  console.log(`seed ${seed}`);

  const disks = [new Disk(), new Disk()];
  const identities = [await Identity.generate(), await Identity.generate()];
  const got: number[][] = [[], []];
  const errors: Error[] = [];
  const open = async (i: number): Promise<Client> => {
    const c = new Client({
      url: network.url, relay: relay.key, WebSocket, identity: identities[i]!, storage: disks[i]!, backoff: { min: 5, max: 100 },
    });
    c.on('message', (m) => void got[i]!.push(Number(m.text)));
    c.on('error', (e) => errors.push(e));
    await c.connect();
    return c;
  };
  const clients = [await open(0), await open(1)];
  const accepted = [0, 0];
  const todo = new Set(['cut', 'kill', 'restart']); // chance alone may leave one out
  const send = async (i: number): Promise<void> => {
    while (accepted[i]! < messages) {
      const client = clients[i]!;
      const to = identities[1 - i]!.key;
      try {
        await client.send(to, String(accepted[i]), { until: 'queued' });
        accepted[i]!++;
      } catch (err) {
        // The client was closed before the message was taken.
        assert.equal((err as { code?: string }).code, 'closed');
        await wait(5);
      }
      if (accepted[i]! % 20 === 0) await wait(random() * 100);
    }
  };
  const sending = Promise.all([send(0), send(1)]);
  const until = Date.now() + seconds * 1000;
  const port = Number(new URL(relay.url).port);
  while (Date.now() < until || todo.size > 0) {
    await wait(random() * 400);
    const what = random();
    if (what < 0.6) {
      network.cut();
      todo.delete('cut');
    } else if (what < 0.8) {
      await relay.stop('SIGKILL');
      relay = await startRelay(['--data', data], port);
      todo.delete('kill');
    } else {
      const i = random() < 0.5 ? 0 : 1;
      await clients[i]!.close();
      clients[i] = await open(i);
      todo.delete('restart');
    }
  }
  await sending;
  for (let n = 0; n < 2000 && got.some((g) => g.length < messages); n++) await wait(50);
  const all = Array.from({ length: messages }, (_, i) => i);
  assert.deepEqual(got[0], all);
  assert.deepEqual(got[1], all);
  await wait(200);
  assert.deepEqual([got[0]!.length, got[1]!.length], [messages, messages]);
  await Promise.all(clients.map((c) => c.close()));
  assert.deepEqual(errors.map(String).filter((e) => !/closed|disconnected/.test(e)), []);
});
