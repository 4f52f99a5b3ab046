/** The codes that relays have, by number (spec native.md, "Codes"). Index 0 is none. */
const relayCodes = [
  '', 'malformed', 'unsupported-version', 'not-authenticated', 'bad-signature', 'spoofed-sender',
  'too-large', 'rate-limited', 'overloaded', 'quota', 'inbox-full', 'storage-full', 'not-here',
  'not-in-room', 'invalid-topic', 'invalid-filter', 'retained-full', 'denied', 'replaced',
  'going-away', 'hop-limit', 'not-found', 'unknown-verb', 'expired', 'internal',
] as const;

/** What a relay says of a refusal. A number that has no name is "code-N". */
export type RelayCode = Exclude<(typeof relayCodes)[number], ''> | `code-${number}`;

/**
 * Why something failed here.
 *
 * - `weak-key`: a key of small order, in no canonical form, or on no curve
 * - `unopened`: what was sealed does not open
 * - `unknown-key`: sealed to a key, or in a way, that we do not have
 * - `key-mismatch`: the relay has another key than the one pinned or seen before
 * - `legacy-relay`: the relay speaks handshake v1 only, which was not allowed
 * - `legacy-session`: not possible with a relay that speaks handshake v1
 * - `card`: a contact's card is forged, rolled back, withheld or no longer valid
 * - `identity`: stored keys are damaged, or of another kind than asked for
 * - `disconnected`: there is no connection, or it ended before the answer
 * - `timeout`, `aborted`, `closed`: the time was up, the caller gave up, the client has ended
 * - `refused`: a relay refused in the json dialect, whose words are the message
 * - `cancelled`: a file was refused or given up by the other side
 */
export type OwnCode =
  | 'weak-key' | 'unopened' | 'unknown-key' | 'key-mismatch' | 'legacy-relay' | 'legacy-session'
  | 'card' | 'identity' | 'disconnected' | 'timeout' | 'aborted' | 'closed' | 'refused' | 'cancelled';

/** Every error of this package. Its text names keys, never secrets. */
export class SottoError extends Error {
  override readonly name = 'SottoError';

  /** `byRelay` says that the relay refused, and not we. */
  constructor(readonly code: RelayCode | OwnCode, message: string, readonly byRelay = false) {
    super(message === code ? code : `${code}: ${message}`);
  }
}

/** Returns the name of a number on the wire. */
export function relayCode(n: number): RelayCode {
  return (n > 0 && relayCodes[n] as RelayCode | undefined) || `code-${n}`;
}

/** Returns the code that has this name; undefined if none has. */
export function relayCodeNamed(name: string): RelayCode | undefined {
  return name !== '' && (relayCodes as readonly string[]).includes(name) || /^code-\d+$/.test(name)
    ? (name as RelayCode)
    : undefined;
}

/** Returns the error for bytes that are not what they should be. */
export function malformed(what: string): SottoError {
  return new SottoError('malformed', what);
}

/** Returns err, or what was thrown in its place, as a SottoError. */
export function asError(err: unknown): SottoError {
  if (err instanceof SottoError) return err;
  return new SottoError('internal', err instanceof Error ? err.message : String(err));
}
