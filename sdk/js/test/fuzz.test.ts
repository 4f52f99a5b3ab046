// Every decoder with what is nearly right: it decodes, or says that it is malformed; and
// what decodes encodes to the same bytes, where there is an encoder.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Bytes, concat, u16, u32, utf8 } from '../src/bytes.js';
import { decodeContent, encodeContent } from '../src/crypto/content.js';
import { decodeControl, decodePart, encodeControl, encodePart } from '../src/crypto/filepart.js';
import { GroupKey } from '../src/crypto/group.js';
import { unpad } from '../src/crypto/seal.js';
import { SottoError } from '../src/errors.js';
import { formatPairing, parsePairing } from '../src/pairing.js';
import { decodeServers } from '../src/wire/nodeinfo.js';
import {
  decodeError, decodeGoAway, decodePublication, decodeReceipt, decodeSealed, encodePublication,
} from '../src/wire/payload.js';

const id = new Uint8Array(16).fill(7);
const header = { name: 'a.txt', size: 5, sha256: '0a'.repeat(32) };

interface Decoder {
  tries?: number; // 20,000
  seeds: Bytes[];
  decode(b: Bytes): unknown;
  /** Returns the bytes that must be the ones decoded, if there is one way to write it. */
  encode?(b: Bytes): Bytes | undefined;
}

const decoders: Record<string, Decoder> = {
  receipt: {
    seeds: [concat(id, Uint8Array.of(1)), concat(id, Uint8Array.of(3), new Uint8Array(96)), concat(id, Uint8Array.of(4), u16(7), utf8('é'))],
    decode: decodeReceipt,
  },
  error: { seeds: [concat(u16(7), utf8('é'), id)], decode: (b) => [decodeError(0, b), decodeError(1, b)] },
  goAway: { seeds: [concat(u32(7), utf8('wss://é'))], decode: decodeGoAway },
  publication: {
    seeds: [encodePublication('tö', utf8('x'))],
    decode: decodePublication,
    encode: (b) => {
      const { name, content } = decodePublication(b);
      return encodePublication(name, content);
    },
  },
  sealed: { seeds: [concat(new Uint8Array(32), Uint8Array.of(2), new Uint8Array(60))], decode: decodeSealed },
  servers: {
    seeds: [concat(Uint8Array.of(3), u16(1), new Uint8Array(32), Uint8Array.of(2), utf8('é')), Uint8Array.of(4, 1, 97)],
    decode: decodeServers,
  },
  content: {
    seeds: [concat(Uint8Array.of(3, 1), utf8('ab')), concat(Uint8Array.of(1), utf8('é'))],
    decode: decodeContent,
    encode: (b) => encodeContent(decodeContent(b)),
  },
  padded: { seeds: [concat(u32(2), Uint8Array.of(1, 97), new Uint8Array(2))], decode: unpad },
  part: {
    seeds: [encodePart({ transfer: id, index: 0, last: true, header, data: utf8('hello') }).data, encodePart({ transfer: id, index: 1, last: false, data: utf8('x') }).data],
    decode: decodePart,
    encode: (b) => {
      const p = decodePart(b);
      return p.header === undefined ? encodePart(p).data : undefined; // JSON is written in many ways
    },
  },
  control: {
    seeds: [encodeControl({ transfer: id, op: 'have', have: 9 }).data, encodeControl({ transfer: id, op: 'cancel' }).data],
    decode: decodeControl,
    encode: (b) => encodeControl(decodeControl(b)).data,
  },
  groupKey: { seeds: [new Uint8Array(52).fill(3)], decode: (b) => new GroupKey(b), encode: (b) => new GroupKey(b).encode() },
  pairing: {
    tries: 2000, // keys are checked
    seeds: ['ws://a', 'wss://[::1]:8/x'].map((url) => utf8(formatPairing({ key: 'd75038a7c34714c9a4aa615644ab10c9d0645186700a4f977760614114afdf59', url, card: 7n }))),
    decode: (b) => parsePairing(new TextDecoder().decode(b)),
    encode: (b) => {
      const text = new TextDecoder().decode(b);
      return text.includes('\ufffd') ? undefined : utf8(formatPairing(parsePairing(text)));
    },
  },
};

for (const [name, d] of Object.entries(decoders)) {
  test(name, () => {
    const random = (n: number) => Math.floor(Math.random() * n);
    let good = 0;
    for (let i = 0; i < (d.tries ?? 20_000); i++) {
      const seed = d.seeds[i % d.seeds.length]!;
      let b = seed.slice();
      if (i >= d.seeds.length) {
        if (i % 5 === 0) b = b.slice(0, random(b.length + 1));
        if (i % 7 === 0) b = concat(b, new Uint8Array(random(9)));
        for (let n = random(3); n > 0 && b.length > 0; n--) b[random(b.length)] = random(4) === 0 ? random(256) : random(8);
      }
      try {
        d.decode(b);
      } catch (err) {
        assert.ok(err instanceof SottoError && ['malformed', 'weak-key'].includes(err.code), `${name} ${Buffer.from(b).toString('hex')}: ${err}`);
        continue;
      }
      good++;
      const encoded = d.encode?.(b);
      if (encoded !== undefined) assert.deepEqual(encoded, b, name);
    }
    assert.ok(good > d.seeds.length, 'some decode');
  });
}
