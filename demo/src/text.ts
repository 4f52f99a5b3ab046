// How things are written.

import type { Key } from '../../sdk/js/src/index.js';

/** A key, short: to tell people apart, not to compare keys by. */
export function shortKey(key: Key): string {
  return `${key.slice(0, 6)}…${key.slice(-4)}`;
}

export function size(bytes: number): string {
  if (bytes < 1000) return `${bytes} bytes`;
  const unit = bytes < 1e6 ? ([1e3, 'kB'] as const) : bytes < 1e9 ? ([1e6, 'MB'] as const) : ([1e9, 'GB'] as const);
  return `${(bytes / unit[0]).toFixed(1)} ${unit[1]}`;
}

export function time(ms: number): string {
  const at = new Date(ms);
  const today = new Date().toDateString() === at.toDateString();
  return at.toLocaleString([], today ? { timeStyle: 'short' } : { dateStyle: 'short', timeStyle: 'short' });
}

/** A hue for somebody, from the key. */
export function hue(key: Key): number {
  return Math.floor((parseInt(key.slice(0, 4), 16) / 0x10000) * 12);
}

/** Cuts what somebody calls himself. */
export function cutName(name: string): string {
  return [...name.replace(/\p{C}/gu, '').trim()].slice(0, 40).join('');
}

/** Returns the name of a file without the marks that turn letters around, by which a program looks like a picture. */
export function plainName(name: string): string {
  return name.replace(/\p{Bidi_Control}/gu, '');
}

export function messageOf(err: unknown): string {
  return err instanceof Error ? err.message : String(err);
}
