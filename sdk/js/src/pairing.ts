// Pairing strings (spec native.md, "Sealing"): who somebody is and at which relay.
//
//   sotto://<key>@<host>[:<port>][/<path>]?[relay=<key>&][card=<serial>&]tls=<0 or 1>
//
// Keys are in base64url, the serial in decimal, the parameters in this order. There is
// one way to write each.

import { base64url, fromBase64url, hex } from './bytes.js';
import { checkedKeyBytes, type Key } from './crypto/identity.js';
import { malformed } from './errors.js';

/** Who somebody is and at which relay. It has no secrets, but who can change it on the way can take that place. */
export interface Pairing {
  key: Key;
  /** The relay's address over WebSocket: ws:// or wss://, without a query. */
  url: string;
  /** The key that the relay must have. */
  relay?: Key;
  /** The serial of a card that there is: see Client.promiseCard. */
  card?: bigint;
}

const most = 1024;
const maxSerial = 2n ** 64n - 1n;

/** Writes a pairing string. */
export function formatPairing(p: Pairing): string {
  const url = /^(wss?):\/\/([^/?#]*)(\/[^?#]*)?$/.exec(p.url);
  if (url === null) throw malformed('a relay has a ws:// or wss:// URL without a query');
  const parameters = [
    ...(p.relay === undefined ? [] : [`relay=${keyText(p.relay)}`]),
    ...(p.card ? [`card=${p.card}`] : []),
    `tls=${url[1] === 'wss' ? 1 : 0}`,
  ];
  const text = `sotto://${keyText(p.key)}@${url[2]}${url[3] ?? ''}?${parameters.join('&')}`;
  parsePairing(text);
  return text;
}

/** Reads what formatPairing writes, and nothing else. */
export function parsePairing(text: string): Pairing {
  const m = /^sotto:\/\/([A-Za-z0-9_-]{43})@([^/?#@]+)(\/[^?#]*)?\?(?:relay=([A-Za-z0-9_-]{43})&)?(?:card=([1-9][0-9]{0,19})&)?tls=([01])$/.exec(text);
  if (m === null || text.length > most || !isHost(m[2]!) || !isPath(m[3] ?? '')) throw malformed('not a pairing string');
  const card = m[5] === undefined ? undefined : BigInt(m[5]);
  if (card !== undefined && card > maxSerial) throw malformed('not a pairing string');
  return {
    key: keyOf(m[1]!),
    url: `${m[6] === '1' ? 'wss' : 'ws'}://${m[2]}${m[3] ?? ''}`,
    ...(m[4] !== undefined && { relay: keyOf(m[4]) }),
    ...(card !== undefined && { card }),
  };
}

function keyText(key: Key): string {
  return base64url(checkedKeyBytes(key));
}

function keyOf(text: string): Key {
  const b = fromBase64url(text);
  if (b?.length !== 32) throw malformed('not a key');
  const key = hex(b);
  checkedKeyBytes(key);
  return key;
}

/** Says whether s is a name in lower case or an address, with or without a port, as URLs have it in normal form. */
function isHost(s: string): boolean {
  const port = /:([1-9][0-9]{0,4})$/.exec(s);
  const host = port === null ? s : s.slice(0, port.index);
  if (port !== null && Number(port[1]) > 65535) return false;
  if (!/^\[[0-9a-f:.]+\]$/.test(host)) return host.length <= 253 && /^[a-z0-9.-]+$/.test(host);
  try {
    return new URL(`ws://${host}`).hostname === host;
  } catch {
    return false;
  }
}

function isPath(s: string): boolean {
  return /^[A-Za-z0-9/\-._~!$&'()*+,;=:@]*$/.test(s) && !s.split('/').some((part) => part === '.' || part === '..');
}
