#!/usr/bin/env python3
"""A client of a sotto relay's json dialect, over TCP, sealing with libsodium.

    python3 client.py --relay 127.0.0.1:7700 --address alice --to bob --text hello

sends a message to bob, and prints what alice gets until nothing comes for a
while. It needs Python 3.8 and PyNaCl (python3-nacl in Debian). docs/json.md
explains what goes over the wire.
"""

import argparse
import base64
import hashlib
import json
import secrets
import socket
import struct

from nacl.exceptions import CryptoError
from nacl.public import Box, PrivateKey, PublicKey


def b64(data):
    return base64.b64encode(data).decode()


# Framing: a message is a JSON object behind its length, 4 bytes, big-endian.

def write_message(stream, message):
    body = json.dumps(message).encode()
    stream.write(struct.pack(">I", len(body)) + body)
    stream.flush()


def read_message(stream):
    length = struct.unpack(">I", read_exactly(stream, 4))[0]
    return json.loads(read_exactly(stream, length))


def read_exactly(stream, count):
    data = stream.read(count)
    if len(data) < count:
        raise ConnectionError("the relay has closed the connection")
    return data


# Sealing: a NaCl box from the sender's key to the recipient's.

def seal(private, public, plaintext):
    nonce = secrets.token_bytes(24)  # new for every message
    ciphertext = Box(private, public).encrypt(plaintext, nonce).ciphertext
    return b64(nonce), b64(ciphertext)


def unseal(private, public, nonce, ciphertext):
    nonce = base64.b64decode(nonce, validate=True)
    ciphertext = base64.b64decode(ciphertext, validate=True)
    return Box(private, public).decrypt(ciphertext, nonce)


def address_of(public):
    """The address that is the hash of a key."""
    digest = hashlib.sha256(bytes(public)).digest()
    return base64.b32encode(digest).decode()[:16]


def is_hash(address):
    return len(address) == 16 and not set(address) - set("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")


class Client:
    """A registered address. It is for one thread."""

    def __init__(self, host, port, address=None, private=None, timeout=30):
        self.private = private or PrivateKey.generate()
        self.public = b64(bytes(self.private.public_key))
        self.address = address or address_of(self.private.public_key)
        self.peers = {}  # the key with which each address was first seen
        self.asked = set()  # who has our key, and owes us his
        self.events = []  # what came while something else was waited for
        self.socket = socket.create_connection((host, port), timeout)
        self.stream = self.socket.makefile("rwb")
        # With a key of your own that you keep, add it as "pubkey": then nobody
        # else can register the address.
        register = {"t": "register", "addr": address}
        if address is None:
            register = {"t": "register", "pubkey": self.public}
        write_message(self.stream, register)
        while True:  # messages that were kept come before the confirmation
            message = read_message(self.stream)
            if message["t"] == "registered":
                break
            if message["t"] == "error":
                raise ConnectionError("not registered: " + message["msg"])
            self.handle(message)

    def close(self):
        self.stream.close()
        self.socket.close()

    def send(self, to, text, id=None):
        """Seals a text and sends it. The recipient's key is asked for if need be."""
        if to not in self.peers:
            self.asked.add(to)
            self.announce(to)
        while to not in self.peers:
            self.handle(read_message(self.stream))
        nonce, ciphertext = seal(self.private, self.peers[to], text.encode())
        message = {"t": "send", "to": to, "pub": self.public, "nonce": nonce, "ct": ciphertext}
        if id is not None:
            message["id"] = id
        write_message(self.stream, message)

    def announce(self, to):
        """Tells somebody our key. He answers with his."""
        write_message(self.stream, {"t": "send", "to": to, "pub": self.public, "nonce": "", "ct": ""})

    def receive(self):
        """Waits for the next event: what the relay has sent, with "text" if it was a
        message that could be opened, or an "unreadable" one."""
        while not self.events:
            self.handle(read_message(self.stream))
        return self.events.pop(0)

    def handle(self, message):
        if message["t"] == "deliver":
            self.deliver(message)
        else:
            self.events.append(message)

    def deliver(self, message):
        sender = message["from"]
        try:
            key = self.key_of(sender, message.get("pub"))
            if message.get("pub") and not message.get("ct"):
                self.announced(sender, key)
                return
            text = unseal(self.private, key, message["nonce"], message["ct"]).decode()
        except (CryptoError, ValueError, TypeError, KeyError) as error:
            self.events.append({"t": "unreadable", "from": sender, "text": str(error)})
            return
        self.peers[sender] = key  # it has opened something
        self.events.append(dict(message, text=text))
        if "id" in message:  # he wants to be told
            write_message(self.stream, {"t": "ack", "to": sender, "id": message["id"]})

    def key_of(self, sender, pub):
        """The key of a sender who says that it is pub, or says nothing."""
        known = self.peers.get(sender)
        if not pub:
            return known
        key = PublicKey(base64.b64decode(pub, validate=True))
        if known and known != key or is_hash(sender) and address_of(key) != sender:
            # He has a new one, or somebody is in between. Ask him by another way.
            raise ValueError("not the key to expect")
        return key

    def announced(self, sender, key):
        """Somebody tells us his key, to be told ours, unless it is an answer."""
        known, answer = sender in self.peers, sender in self.asked
        self.peers[sender] = key
        self.asked.discard(sender)
        if not known and not answer:
            self.announce(sender)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--relay", required=True, metavar="HOST:PORT")
    parser.add_argument("--address", help="without it, the hash of a new key")
    parser.add_argument("--to", help="whom to send to")
    parser.add_argument("--text", default="hello", help="what to send")
    parser.add_argument("--wait", type=float, default=2, help="seconds to wait for more")
    options = parser.parse_args()

    host, port = options.relay.rsplit(":", 1)
    client = Client(host, int(port), options.address)
    print("registered", client.address, client.public, flush=True)
    if options.to:
        client.send(options.to, options.text, id=secrets.token_hex(8))
    client.socket.settimeout(options.wait)
    try:
        while True:
            event = client.receive()
            print(event["t"], event.get("from", ""), event.get("text", ""), flush=True)
    except socket.timeout:
        client.close()


if __name__ == "__main__":
    main()
