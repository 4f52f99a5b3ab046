// The vectors that the Go packages are tested with.

import { readFileSync } from 'node:fs';
import { type Bytes, fromHex } from '../src/bytes.js';

/** The root of the repository, seen from build/test. */
export const root = new URL('../../../../', import.meta.url);

// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Case = Record<string, any>;

export function vectors(path: string): Record<string, Case[]> {
  return JSON.parse(readFileSync(new URL(path, root), 'utf8'));
}

/** Returns the cases of a file, at least one. */
export function cases(path: string, list = 'cases'): Case[] {
  const all = vectors(path)[list];
  if (!all?.length) throw new Error(`no cases in ${path}`);
  return all;
}

/** Decodes hex of any length. */
export function bytes(digits: string): Bytes {
  const b = fromHex(digits, digits.length / 2);
  if (b === undefined) throw new Error('not hex');
  return b;
}
