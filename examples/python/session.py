#!/usr/bin/python3
"""Opens a session, holds a lock while a command runs, and says what it hears.

The stubs are generated from models/locket.proto alone, as lock.py says:

    examples/python/session.py 127.0.0.1:8891 nightly-report sleep 60
"""

import os
import queue
import secrets
import subprocess
import sys
import threading
import time

import grpc

import locket_pb2
import locket_pb2_grpc

TTL = 15  # seconds for which the session lives without its server hearing from it
MARGIN = 1  # seconds: stop before anybody else may hold the lock


def credentials():
    """Says who calls, if the server asks: with a bearer credential in a file."""
    if "LOCKET_CREDENTIAL_FILE" not in os.environ:
        return []
    with open(os.environ["LOCKET_CREDENTIAL_FILE"]) as file:
        return [("authorization", "Bearer " + file.read().strip())]


class Session:
    """A session on one stream. It does not reconnect: when the stream breaks, it is lost."""

    def __init__(self, stub):
        self.requests = queue.Queue()
        self.sequence = 0
        self.sent = {}  # when each heartbeat was sent, by its sequence
        # Until then what it holds may be relied on.
        self.trusted = time.monotonic() + TTL - MARGIN
        self.send(
            open=locket_pb2.OpenSession(
                id=secrets.token_hex(16), secret=secrets.token_hex(16), ttl=TTL
            )
        )
        self.responses = stub.Session(iter(self.requests.get, None), metadata=credentials())

    def send(self, **command):
        """Sends a message; its answer has the sequence that this returns."""
        self.sequence += 1
        self.requests.put(locket_pb2.SessionRequest(sequence=self.sequence, **command))
        return self.sequence

    def beat(self):
        """Sends heartbeats, in a thread of its own."""
        while True:
            at = time.monotonic()
            self.sent[self.send(heartbeat=locket_pb2.Heartbeat())] = at
            time.sleep(TTL / 3)

    def statuses(self):
        """Yields how the session stands to a resource, each time that changes."""
        for response in self.responses:
            event = response.WhichOneof("event")
            if event == "heartbeat":
                # From when it was sent: the server has vouched for the session since.
                self.trusted = self.sent.pop(response.sequence) + TTL - MARGIN
            elif event == "status":
                yield response.status
            elif event == "error":
                sys.exit("refused: " + response.error.message)


def watch(session, key, held, lost):
    """Says when the lock is held, and when it is lost."""
    try:
        for status in session.statuses():
            print(key, locket_pb2.Holding.Name(status.current), status.token, flush=True)
            if status.current == locket_pb2.HOLDING_HELD:
                held.set()
            elif held.is_set():
                break
    except grpc.RpcError as error:
        print("the session has ended: %s" % error.details(), file=sys.stderr)
    lost.set()
    held.set()


def main(address, key, command):
    held, lost = threading.Event(), threading.Event()
    with grpc.insecure_channel(address) as channel:
        session = Session(locket_pb2_grpc.LocketStub(channel))
        threading.Thread(target=session.beat, daemon=True).start()
        threading.Thread(target=watch, args=(session, key, held, lost), daemon=True).start()
        session.send(lock=locket_pb2.LockCommand(resource=key))
        held.wait()
        if lost.is_set():
            sys.exit("there is no session")
        work = subprocess.Popen(command)
        while work.poll() is None:
            # Without an answer in time somebody else may hold the lock soon.
            if lost.is_set() or time.monotonic() > session.trusted:
                work.kill()
                sys.exit("the lock is lost")
            time.sleep(0.05)
        # It ends with all that it holds and waits for, and the next in the queue is granted.
        session.send(close=locket_pb2.CloseSession())
        lost.wait()
        sys.exit(work.returncode)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: session.py ADDRESS KEY COMMAND...")
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
