import 'fake-indexeddb/auto';
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { WebSocket } from 'ws';
import { type Relay, scratch, startRelay } from './relay.js';

const sdk = new URL('../../', import.meta.url);
let relay: Relay;

before(async () => {
  relay = await startRelay(['--data', scratch()]);
});

after(() => relay.stop());

test('the quick start has less than 30 lines, and does what it says', async () => {
  const readme = readFileSync(new URL('README.md', sdk), 'utf8');
  const code = /## Quick start\n+```js\n([^]*?)```/.exec(readme)![1]!;
  assert.ok(code.split('\n').length < 30);
  // The package is not installed here, and its relay is ours. A page would go on.
  const program = code
    .replace("'@sotto-relay/client'", "'../src/index.js'")
    .replace('wss://relay.example', relay.url) + '\nexport { client };\n';
  const dir = mkdtempSync(fileURLToPath(new URL('build/quickstart-', sdk)));
  const said: string[] = [];
  const log = console.log;
  console.log = (...words: unknown[]) => said.push(words.map((w) => (typeof w === 'string' ? w : JSON.stringify(w))).join(' '));
  try {
    Object.assign(globalThis, { WebSocket });
    writeFileSync(`${dir}/main.mjs`, program);
    const { client } = (await import(`${dir}/main.mjs`)) as { client: { key: string; close(): Promise<void> } };
    await client.close();
    assert.deepEqual(said, [
      `write to me: ${client.key}`, `${client.key} says hello`, `${client.key} says {"move":3}`, 'offline: closed',
    ]);
  } finally {
    console.log = log;
    rmSync(dir, { recursive: true });
  }
});
