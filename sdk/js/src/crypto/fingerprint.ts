import { concat, sha256, utf8, view } from '../bytes.js';
import { type Key, keyBytes } from './identity.js';

/**
 * Returns six words for people to compare keys by. They hold 66 bits: enough against a
 * key that was made to have the same words as another, not a name for the key.
 */
export async function fingerprint(key: Key): Promise<string> {
  const words = (await import('./words.js')).words.split(' ');
  const sum = view(await sha256(concat(utf8('sotto words v1\x00'), keyBytes(key))));
  const word = (i: number) => {
    // 11 bits from bit 11·i on lie within the 4 bytes around them.
    const bit = 11 * i;
    return words[(sum.getUint32(bit >> 3) >>> (21 - (bit % 8))) & 0x7ff];
  };
  return Array.from({ length: 6 }, (_, i) => word(i)).join(' ');
}
