import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

const sdk = new URL('../../', import.meta.url);
const read = (name: string) => readFileSync(new URL(name, sdk), 'utf8');

test('the lock file names no registry but the public one', () => {
  assert.ok(!/"resolved": "(?!https:\/\/registry\.npmjs\.org\/)/.test(read('package-lock.json')));
});

test('what is exported is built from a source that is there', () => {
  const { exports, files, sideEffects, dependencies } = JSON.parse(read('package.json')) as {
    exports: Record<string, { types: string; default: string } | string>; files: string[]; sideEffects: boolean;
    dependencies: Record<string, string>;
  };
  for (const e of Object.values(exports)) {
    if (typeof e === 'string') continue;
    assert.ok(read(e.default.replace('./dist', 'src').replace('.js', '.ts')).length > 0);
    assert.equal(e.types, e.default.replace('.js', '.d.ts'));
  }
  assert.deepEqual(files, ['dist', 'README.md', 'LICENSE']);
  assert.equal(sideEffects, false);
  // Versions of what does cryptography do not move by themselves.
  for (const [name, version] of Object.entries(dependencies)) assert.match(`${name} ${version}`, /^@noble\/\S+ \d+\.\d+\.\d+$/);
});
