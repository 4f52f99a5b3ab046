// What clients tell one another: content on its way out, and letters that came in.

import { type Bytes, equal, fromUTF8, hex, utf8 } from './bytes.js';
import { type Content, ContentType, isSafeFileName, isWellFormed } from './crypto/content.js';
import { decrypt } from './crypto/encrypted.js';
import type { Identity, Key } from './crypto/identity.js';
import { openSealed, type OpenKey } from './crypto/seal.js';
import { openSigned } from './crypto/signed.js';
import { malformed, SottoError } from './errors.js';
import { type Frame, Type } from './wire/frame.js';

/** What a message says: a string is text, bytes are raw, and json and file make the rest. */
export type Body = string | Uint8Array | JSONBody | FileBody;

export interface JSONBody {
  json: unknown;
}

/** A small file, whole. */
export interface FileBody {
  name: string; // without a directory
  bytes: Uint8Array;
}

/** Returns the content of a body, which shares no bytes with it; `malformed` if it cannot be sent. */
export function contentOf(body: Body): Content {
  if (typeof body === 'string') {
    if (!isWellFormed(body)) throw malformed('text with a lone surrogate');
    return { type: ContentType.text, data: utf8(body) };
  }
  if (body instanceof Uint8Array) return { type: ContentType.raw, data: new Uint8Array(body) };
  if ('json' in body) {
    const text = JSON.stringify(body.json) as string | undefined;
    if (text === undefined) throw malformed('not a JSON value');
    return { type: ContentType.json, data: utf8(text) };
  }
  if (!isSafeFileName(body.name)) throw malformed('not the name of a file');
  return { type: ContentType.file, name: body.name, data: new Uint8Array(body.bytes) };
}

/**
 * What the sender did for a message, and so what is known of it.
 *
 * - `sealed`: only we could read it, and the sender sealed it, for us, under this id
 * - `encrypted`: only we could read it. The sender signed the ciphertext, which does not prove to have made it
 * - `signed`: the sender signed it, for us. Relays could read it
 * - `legacy`: the sender signed it, but not for whom
 * - `unsigned`, `clear`: nothing. Who sent it is the relay's word
 */
export type Protection = 'sealed' | 'encrypted' | 'signed' | 'legacy' | 'unsigned' | 'clear';

/** A message that came in. */
export class Letter {
  constructor(
    /** Who sent it, proved as far as `protection` says. */
    readonly from: Key,
    /** The message id in hex; all zeros from a legacy relay. */
    readonly id: string,
    readonly protection: Protection,
    private readonly content: Content,
  ) {}

  /** What it says. The type of content is one of this list. */
  get type(): 'text' | 'json' | 'file' | 'raw' {
    return (['raw', 'text', 'json', 'file'] as const)[this.content.type] ?? 'raw';
  }

  /** Its bytes: of a text or a JSON text the UTF-8, of a file what is in it. */
  get bytes(): Bytes {
    return this.content.data;
  }

  /** The name of a file, which is safe to join to a directory. */
  get name(): string | undefined {
    return this.content.name;
  }

  /** The bytes as text; U+FFFD stands for what is not UTF-8. */
  get text(): string {
    return fromUTF8(this.content.data) ?? new TextDecoder().decode(this.content.data);
  }

  /** The value of a JSON text. Throws what JSON.parse throws, for letters of another type. */
  json(): unknown {
    return JSON.parse(this.text);
  }
}

/** What a frame says, and how it was protected. */
export interface Opened {
  content: Content;
  protection: Protection;
}

/** Opens and verifies a frame for which isLetter holds. The result shares nothing with it. */
export async function openFrame(self: Identity, keys: OpenKey[], frame: Frame): Promise<Opened> {
  const f = { ...frame, payload: frame.payload.slice() };
  switch (f.type) {
    case Type.sealed:
      return {
        content: await openSealed(self.public, f.sender, f.id, f.signature, f.payload, keys), protection: 'sealed',
      };
    case Type.encryptedData:
      return { content: await decrypt(self, f.sender, f.signature, f.payload), protection: 'encrypted' };
    case Type.signedData: {
      const { content, trust } = await openSigned(self.public, f.sender, f.signature, f.payload);
      return { content, protection: trust };
    }
  }
  if (f.payload.length < 32) throw malformed('DATA is too short');
  if (!equal(f.payload.subarray(0, 32), self.public)) throw new SottoError('denied', 'for another recipient');
  return { content: { type: ContentType.raw, data: f.payload.subarray(32) }, protection: 'clear' };
}

/** Returns the letter in what a frame said. */
export function letterOf(f: Frame, opened: Opened): Letter {
  return new Letter(hex(f.sender), hex(f.id), opened.protection, opened.content);
}
