// Topics and filters of them (spec json.md, "topics").

import { isWellFormed } from './crypto/content.js';

/** Reports whether s may be published to: not empty, and without wildcards and NUL. */
export function isTopic(s: string): boolean {
  return s !== '' && isWellFormed(s) && !/[+#\0]/.test(s);
}

/** Reports whether s is a filter: `+` and `#` are whole levels, and `#` is the last. */
export function isFilter(s: string): boolean {
  if (s === '' || !isWellFormed(s) || s.includes('\0')) return false;
  const levels = s.split('/');
  return levels.every((level, i) =>
    !/[+#]/.test(level) || level === '+' || (level === '#' && i === levels.length - 1));
}

/** Reports whether a filter matches a topic. `#` stands for the rest, and for the level above it. */
export function matches(filter: string, topic: string): boolean {
  const [f, t] = [filter.split('/'), topic.split('/')];
  for (const [i, level] of f.entries()) {
    if (level === '#') return true;
    if (i >= t.length || (level !== '+' && level !== t[i])) return false;
    if (i === t.length - 1 && i === f.length - 2 && f[i + 1] === '#') return true;
  }
  return f.length === t.length;
}
