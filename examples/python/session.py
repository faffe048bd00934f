#!/usr/bin/python3
"""Opens a session, holds a lock while a command runs, and says what it hears.

The stubs are generated from models/locket.proto alone, as lock.py says:

    examples/python/session.py 127.0.0.1:8891 nightly-report sleep 60
"""

import itertools
import os
import queue
import secrets
import signal
import sys
import threading
import time

import grpc

import command
import locket_pb2
import locket_pb2_grpc

TTL = 15  # seconds for which the server keeps the session without a heartbeat
TRUST = 0.75 * TTL  # for this time it counts as held, from the time when the last answered heartbeat was sent
GRACE = 0.15 * TTL  # then the command has this time to end; the rest is a margin
CONNECT = 10  # seconds for the connection, which is tried again until then
TIMEOUT = 5  # seconds for the end of the session


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
        self.sequences = itertools.count(1)
        self.sent = {}  # when each heartbeat was sent, by its sequence
        self.versions = {}  # of the last status, by resource
        self.trusted_until = time.monotonic() + TRUST  # the end of the trust window
        self.ended = threading.Event()
        self.send(
            open=locket_pb2.OpenSession(
                id=secrets.token_hex(16), secret=secrets.token_hex(16), ttl=TTL
            )
        )
        self.responses = stub.Session(iter(self.requests.get, None), metadata=credentials())

    def send(self, **request):
        """Sends a message. Its answer has the same sequence."""
        sequence = next(self.sequences)
        if "heartbeat" in request:
            self.sent[sequence] = time.monotonic()
        self.requests.put(locket_pb2.SessionRequest(sequence=sequence, **request))

    def beat(self):
        """Sends heartbeats, in a thread of its own."""
        while not self.ended.wait(TTL / 3):
            self.send(heartbeat=locket_pb2.Heartbeat())

    def statuses(self):
        """Yields how the session stands to a resource, each time that changes."""
        for response in self.responses:
            event = response.WhichOneof("event")
            if event == "heartbeat":
                # The window begins when the heartbeat was sent: the server has kept the session alive since.
                self.trusted_until = self.sent.pop(response.sequence) + TRUST
            elif event == "status":
                # Answers and events may come in any order: only a newer version counts.
                status = response.status
                if status.version > self.versions.get(status.resource, -1):
                    self.versions[status.resource] = status.version
                    yield status
            elif event == "error":
                print("refused: " + response.error.message, file=sys.stderr)
                return

    def close(self):
        """Ends the session with all that it holds and waits for. If that fails, it ends with its TTL."""
        self.send(close=locket_pb2.CloseSession())
        self.ended.wait(TIMEOUT)


def listen(session, key, told):
    """Says when the lock is held, and when it is lost, in a thread of its own."""
    try:
        for status in session.statuses():
            print(key, locket_pb2.Holding.Name(status.current), status.token, flush=True)
            if status.current == locket_pb2.HOLDING_HELD:
                told.set()
            elif told.is_set():
                break
    except grpc.RpcError as error:
        print("the session has ended: %s" % error.details(), file=sys.stderr)
    session.trusted_until = min(session.trusted_until, time.monotonic())
    session.ended.set()
    told.set()


def main(address, key, *words):
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit("stopped"))  # so that every finally runs
    told = threading.Event()  # that the lock is held, or never will be
    with grpc.insecure_channel(address) as channel:
        try:
            grpc.channel_ready_future(channel).result(CONNECT)
        except grpc.FutureTimeoutError:
            sys.exit("no server answers at " + address)
        session = Session(locket_pb2_grpc.LocketStub(channel))
        try:
            threading.Thread(target=session.beat, daemon=True).start()
            threading.Thread(target=listen, args=(session, key, told), daemon=True).start()
            session.send(lock=locket_pb2.LockCommand(resource=key))
            told.wait()
            if session.ended.is_set():
                sys.exit("the lock is not to be had")
            status = command.run(words, lambda: session.trusted_until, GRACE)
        finally:
            session.close()
    sys.exit("the lock is lost" if status is None else status)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: session.py ADDRESS KEY COMMAND...")
    main(*sys.argv[1:])
