// The contents that carry a large file (spec native.md, "Sealing" and "Files").
//
//   FILE_PART  transfer 16 ‖ index u32 ‖ flags (bit 0 last) ‖ bytes, those of part 0
//              beginning with u16 length ‖ JSON {name, size, sha256}
//   FILE_CTL   transfer 16 ‖ op u8 ‖ for have: index u32

import { type Bytes, concat, fromUTF8, u16, u32, utf8, view } from '../bytes.js';
import { malformed } from '../errors.js';
import { type Content, ContentType, isSafeFileName } from './content.js';

/** How many bytes a part has at most, the header of the first among them. */
export const maxPart = 256 << 10;

/** Indexes end there. */
const maxSize = 0xffffffff * maxPart;

/** What a file is. */
export interface FileHeader {
  name: string; // isSafeFileName holds
  size: number; // bytes
  sha256: string; // hex
}

export interface FilePart {
  transfer: Bytes; // 16, random
  index: number;
  last: boolean;
  header?: FileHeader; // of part 0
  data: Bytes;
}

export function encodePart(p: FilePart): Content {
  const { name, size, sha256 } = p.header ?? {};
  const header = p.header && utf8(JSON.stringify({ name, size, sha256 }));
  const data = concat(
    p.transfer, u32(p.index), Uint8Array.of(p.last ? 1 : 0), ...(header ? [u16(header.length), header] : []), p.data,
  );
  return { type: ContentType.filePart, data };
}

export function decodePart(b: Bytes): FilePart {
  if (b.length < 21 || b.length - 21 > maxPart || b[20]! > 1) throw malformed('not a part of a file');
  const p: FilePart = {
    transfer: b.slice(0, 16), index: view(b).getUint32(16), last: b[20] === 1, data: b.subarray(21),
  };
  if (p.index > 0) return p;
  const end = p.data.length < 2 ? Infinity : 2 + view(p.data).getUint16(0);
  if (end > p.data.length) throw malformed('header of a file is cut');
  p.header = decodeHeader(p.data.subarray(2, end));
  p.data = p.data.subarray(end);
  return p;
}

function decodeHeader(b: Bytes): FileHeader {
  let h: Partial<FileHeader> | null;
  try {
    h = JSON.parse(fromUTF8(b) ?? '') as Partial<FileHeader> | null;
  } catch {
    h = null;
  }
  const { name, size, sha256 } = h ?? {};
  const isGood = typeof name === 'string' && isSafeFileName(name) &&
    typeof size === 'number' && Number.isInteger(size) && size >= 0 && size <= maxSize &&
    typeof sha256 === 'string' && /^[0-9a-fA-F]{64}$/.test(sha256);
  if (!isGood) throw malformed('not the header of a file');
  return { name, size, sha256: sha256.toLowerCase() };
}

/** What the receiver says: the file may come; the parts up to `have` have come; or either side: it is over. */
export type FileControl = { transfer: Bytes } & ({ op: 'accept' } | { op: 'cancel' } | { op: 'have'; have: number });

const ops = ['', 'accept', 'have', 'cancel'] as const;

export function encodeControl(c: FileControl): Content {
  const have = c.op === 'have' ? u32(c.have) : new Uint8Array(0);
  return { type: ContentType.fileControl, data: concat(c.transfer, Uint8Array.of(ops.indexOf(c.op)), have) };
}

export function decodeControl(b: Bytes): FileControl {
  const op = ops[b[16] ?? 0];
  const transfer = b.slice(0, 16);
  if (op === 'have' && b.length === 21) return { transfer, op, have: view(b).getUint32(17) };
  if ((op === 'accept' || op === 'cancel') && b.length === 17) return { transfer, op };
  throw malformed('not a control of a file');
}

/**
 * The layout of a file. It follows from its size and the first part: all parts between
 * the first and the last are full, so each has one right length.
 */
export class Layout {
  readonly parts: number;

  /** `first` is how many bytes of the file are in part 0. */
  constructor(readonly size: number, readonly first: number) {
    this.parts = 1 + Math.ceil((size - first) / maxPart);
  }

  /** Where a part begins, or would. */
  offset(index: number): number {
    return index === 0 ? 0 : Math.min(this.first + (index - 1) * maxPart, this.size);
  }

  /** Says whether a part has the length, and is the last one, as it has to be. */
  fits(p: FilePart): boolean {
    return this.first <= this.size && p.index < this.parts && p.last === (p.index === this.parts - 1) &&
      p.data.length === this.offset(p.index + 1) - this.offset(p.index);
  }
}
