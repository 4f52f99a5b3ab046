// What one client tells another, in the clear (spec brep.md, "Content").

import { type Bytes, concat, fromUTF8, utf8 } from '../bytes.js';
import { malformed } from '../errors.js';

/** The first byte of what is signed or encrypted. Those from filePart up occur in SEALED only. */
export const ContentType = {
  raw: 0, text: 1, json: 2, file: 3, filePart: 4, fileControl: 5, groupKey: 6,
} as const;

export interface Content {
  type: number;
  name?: string; // of a file
  data: Bytes;
}

/** Returns the type byte and the content. */
export function encodeContent(c: Content): Bytes {
  check(c);
  if (c.type !== ContentType.file) return concat(Uint8Array.of(c.type), c.data);
  const name = utf8(c.name!);
  return concat(Uint8Array.of(c.type, name.length), name, c.data);
}

/** Reads what encodeContent wrote, under the same rules. */
export function decodeContent(b: Bytes): Content {
  if (b.length === 0) throw malformed('no content');
  const c: Content = { type: b[0]!, data: b.subarray(1) };
  if (c.type === ContentType.file) {
    const end = 1 + (c.data[0] ?? Infinity);
    const name = c.data.length < end ? undefined : fromUTF8(c.data.subarray(1, end));
    if (name === undefined) throw malformed('name of a file is cut or not UTF-8');
    c.name = name;
    c.data = c.data.subarray(end);
  }
  check(c);
  return c;
}

function check(c: Content): void {
  if (c.type === ContentType.text && fromUTF8(c.data) === undefined) throw malformed('text is not UTF-8');
  if (c.type === ContentType.file && !isSafeFileName(c.name ?? '')) throw malformed('not the name of a file');
  if (c.type !== ContentType.file && c.name !== undefined) throw malformed('a name without a file');
}

/**
 * Reports whether name, joined to a directory, names a file in it on any system: 1 to
 * 255 bytes of UTF-8 without separators, colons and control characters, that do not
 * end in a dot or a space and are no device of Windows.
 */
export function isSafeFileName(name: string): boolean {
  const size = utf8(name).length;
  if (size === 0 || size > 255 || !isWellFormed(name)) return false;
  if (/[/\\:\u0000-\u001f\u007f-\u009f]/.test(name) || /[. ]$/.test(name)) return false;
  const base = name.split('.', 1)[0]!.replace(/ +$/, '').toUpperCase();
  return !/^(CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(COM|LPT)[0-9¹²³])$/.test(base);
}

/** Reports whether a string has no lone surrogate. */
export function isWellFormed(s: string): boolean {
  return !/\p{Surrogate}/u.test(s);
}
