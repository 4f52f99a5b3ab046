export { Client, type ClientEvents, type ClientOptions } from './client.js';
export { fingerprint } from './crypto/fingerprint.js';
export { Identity, type IdentityKeys, type Key } from './crypto/identity.js';
export { formatPairing, type Pairing, parsePairing } from './pairing.js';
export { type OwnCode, type RelayCode, SottoError } from './errors.js';
export type { Off } from './events.js';
export type { AcceptFile, FileOffer, FileProgress } from './filereceive.js';
export type { SendFileOptions } from './filesend.js';
export type { Group } from './groups.js';
export type { Names } from './crypto/group.js';
export type { RelayInfo } from './handshake.js';
export { type Body, type FileBody, type JSONBody, Letter, type Protection } from './letter.js';
export type { Status } from './outbox.js';
export type { Gap, GroupOption, Publication, Room } from './publications.js';
export type { Receipt, SendOptions } from './sender.js';
export type { Server } from './servers.js';
export type { WebSocketClass, WebSocketLike } from './session.js';
export {
  IndexedDBStorage, loadIdentity, loadOrCreateIdentity, MemoryStorage, saveIdentity, type Storage, WebStorage,
} from './storage.js';
