// NODE_INFO (spec brep.md): subtype u8 ‖ by subtype. A client asks for servers and
// is told of them; the other subtypes are for relays.

import { type Bytes, fromUTF8, hex, view } from '../bytes.js';
import { malformed } from '../errors.js';

/** A relay that another one knows of. */
export interface ServerInfo {
  key?: string; // hex; not told by ADD_SERVER
  address: string; // a URL, not checked
}

/** The payload that asks for servers. */
export const requestServers: Bytes = Uint8Array.of(2);

/**
 * Returns the servers in a RESPONSE_SERVERS or ADD_SERVER, and undefined for what is
 * empty or of another subtype. Of a list with anything missing or left over nothing
 * is used.
 */
export function decodeServers(b: Bytes): ServerInfo[] | undefined {
  switch (b[0]) {
    case 3:
      return decodeList(b.subarray(1));
    case 4: {
      const [address, rest] = cutAddress(b.subarray(1));
      if (rest.length !== 0) throw malformed('ADD_SERVER is longer than its address');
      return [{ address }];
    }
  }
  return undefined;
}

function decodeList(b: Bytes): ServerInfo[] {
  if (b.length < 2) throw malformed('list of servers is too short');
  const servers: ServerInfo[] = [];
  let rest = b.subarray(2);
  for (let n = view(b).getUint16(0); n > 0; n--) {
    if (rest.length < 32) throw malformed('list of servers is too short');
    const key = hex(rest.subarray(0, 32));
    let address: string;
    [address, rest] = cutAddress(rest.subarray(32));
    servers.push({ key, address });
  }
  if (rest.length !== 0) throw malformed('list of servers is longer than its count');
  return servers;
}

function cutAddress(b: Bytes): [address: string, rest: Bytes] {
  const end = 1 + (b[0] ?? Infinity);
  const address = b.length < end ? undefined : fromUTF8(b.subarray(1, end));
  if (address === undefined) throw malformed('address is cut or not UTF-8');
  return [address, b.subarray(end)];
}
