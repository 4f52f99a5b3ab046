export {
  JsonClient, type JsonClientEvents, type JsonClientOptions, type JsonMessage, type JsonPublication,
} from './client.js';
export { addressOfKey } from './peers.js';
