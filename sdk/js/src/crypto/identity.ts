import { type Bytes, concat, fromHex, hex, isZero, random, u64, utf8 } from '../bytes.js';
import { SottoError } from '../errors.js';
import { toMontgomery } from './curve.js';
import { checkKey } from './verify.js';
import { exportPrivate, importPair, type X25519Pair } from './x25519.js';

/** A public key, which is also the name of whoever holds it: 64 lower-case hexadecimal digits. */
export type Key = string;

/** Returns the 32 bytes of a key, which is not checked further. All but 64 lower-case digits is `malformed`. */
export function keyBytes(key: Key): Bytes {
  const b = fromHex(key, 32);
  if (b === undefined) throw new SottoError('malformed', 'a key is 64 lower-case hexadecimal digits');
  return b;
}

/** Returns the bytes of a key that somebody can be shown to hold; all else is `malformed` or `weak-key`. */
export function checkedKeyBytes(key: Key): Bytes {
  const b = keyBytes(key);
  checkKey(b);
  return b;
}

/** The keys of an identity, as a storage for CryptoKeys keeps them. */
export interface IdentityKeys {
  public: Bytes;
  signing: CryptoKey;
  derived: CryptoKey;
  seed: CryptoKey; // for HKDF
  separate?: X25519Pair;
}

/**
 * An Ed25519 key pair, whose public half is the name of whoever holds it, with the
 * X25519 key pair that messages to that name are sealed to. It is immutable.
 */
export class Identity {
  /** The public key. */
  readonly key: Key;
  /** The public key, 32 bytes. */
  readonly public: Bytes;
  /** The X25519 pair that follows from the seed: for SEALED without a card. */
  readonly derived: X25519Pair;
  /** The X25519 pair for ENCRYPTED_DATA and boxes: a separate one, or else the derived one. */
  readonly x25519: X25519Pair;

  readonly #keys: IdentityKeys; // shown by no inspection

  private constructor(keys: IdentityKeys) {
    this.#keys = keys;
    this.key = hex(keys.public);
    this.public = keys.public;
    this.derived = { public: toMontgomery(keys.public), private: keys.derived };
    this.x25519 = keys.separate ?? this.derived;
  }

  /**
   * Returns a new random identity. If it is extractable, `export` returns its secrets.
   * If not, nothing can read them, and only a storage for CryptoKeys, such as
   * IndexedDB, can keep them.
   */
  static generate(options: { extractable?: boolean } = {}): Promise<Identity> {
    return Identity.fromSeed(random(32), options);
  }

  /** Returns the identity that the 32-byte seed of RFC 8032 stands for. */
  static async fromSeed(seed: Bytes, options: { extractable?: boolean } = {}): Promise<Identity> {
    const extractable = options.extractable ?? false;
    const signing = await importPair('Ed25519', seed, extractable);
    // As libsodium has it: the scalar that RFC 8032 derives from the seed serves as
    // the X25519 key.
    const scalar = new Uint8Array(await crypto.subtle.digest('SHA-512', seed)).slice(0, 32);
    scalar[0]! &= 248;
    scalar[31] = (scalar[31]! & 127) | 64;
    const derived = await importPair('X25519', scalar, extractable);
    return new Identity({
      public: signing.public,
      signing: signing.private,
      derived: derived.private,
      seed: await crypto.subtle.importKey('raw', seed, 'HKDF', false, ['deriveBits']),
    });
  }

  /** Returns the identity that a storage kept. */
  static fromKeys(keys: IdentityKeys): Identity {
    return new Identity(keys);
  }

  /** Returns what a storage for CryptoKeys keeps. */
  toKeys(): IdentityKeys {
    return { ...this.#keys };
  }

  /** Returns the same identity with a separate X25519 key, given by its 32 bytes, as users of MERK-BREP have. */
  async withX25519(secret: Bytes): Promise<Identity> {
    return new Identity({ ...this.#keys, separate: await importPair('X25519', secret, this.extractable) });
  }

  /** Whether `export` works. */
  get extractable(): boolean {
    return this.#keys.signing.extractable;
  }

  /**
   * Returns the Ed25519 signature over msg, 64 bytes. What is signed must begin with a
   * label that says what it is for, or else be nothing that another party chose.
   */
  async sign(msg: Bytes): Promise<Bytes> {
    return new Uint8Array(await crypto.subtle.sign('Ed25519', this.#keys.signing, msg));
  }

  /**
   * Returns the secret of the card with that number, 64 bytes, which is the same every
   * time. It is for those who can keep no keys, since it can never be erased.
   */
  async cardSecret(number: bigint): Promise<Bytes> {
    const info = concat(utf8('sotto card keys v1\x00'), u64(number));
    const how = { name: 'HKDF', hash: 'SHA-256', salt: new Uint8Array(0), info };
    return new Uint8Array(await crypto.subtle.deriveBits(how, this.#keys.seed, 512));
  }

  /**
   * Returns the identity, secrets included, as the text of an identity file: that of
   * `sotto --identity FILE`. One that is not extractable is an error, `identity`.
   */
  async export(): Promise<string> {
    if (!this.extractable) throw new SottoError('identity', 'made so that its secrets cannot be read');
    const lines = [
      version,
      `ed25519-public ${this.key}`,
      `ed25519-seed ${hex(await exportPrivate(this.#keys.signing))}`,
    ];
    if (this.#keys.separate !== undefined) {
      lines.push(
        `x25519-public ${hex(this.#keys.separate.public)}`,
        `x25519-private ${hex(await exportPrivate(this.#keys.separate.private))}`,
      );
    }
    return lines.join('\n') + '\n';
  }

  /** Returns the identity in the text of an identity file. What is not byte for byte one is `identity`. */
  static async import(text: string, options: { extractable?: boolean } = {}): Promise<Identity> {
    const fields = new Map(text.split('\n').map((line) => line.split(' ', 2) as [string, string | undefined]));
    const seed = fromHex(fields.get('ed25519-seed') ?? '', 32);
    const separate = fromHex(fields.get('x25519-private') ?? '', 32);
    if (seed === undefined) throw damaged();
    try {
      let open = await Identity.fromSeed(seed, { extractable: true });
      if (separate !== undefined) open = await open.withX25519(separate);
      // This compares the public keys too, and finds lines that are missing, in
      // another order, repeated or unknown.
      if ((await open.export()) !== text) throw damaged();
    } catch {
      throw damaged();
    }
    const id = await Identity.fromSeed(seed, options);
    return separate === undefined ? id : id.withX25519(separate);
  }

  /** Returns the public key, so that an identity in a JSON text shows nothing else. */
  toJSON(): Key {
    return this.key;
  }
}

const version = 'sotto identity v1';

const damaged = () => new SottoError('identity', 'the text is no identity, or truncated or damaged');

/** Returns 16 random bytes for a message, never zero. */
export function newID(): Bytes {
  const id = random(16);
  return isZero(id) ? newID() : id;
}
