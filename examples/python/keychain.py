#!/usr/bin/env python3
"""Holds resources through `locket keychain`, a process that keeps claims alive and gives them
back when this one ends, however it ends. To be copied, with command.py beside it; it needs nothing
but Python and the program `locket`. When this program is killed, its guard (command.py) and the keychain
learn it in the same moment; only the token protects what the command does until it is dead.

    with Keychain("http://127.0.0.1:8892", "--ttl", "15s") as keychain:
        with keychain.claim("nightly-report", timeout=60) as claim:
            store(work(), claim.token)
            claim.check()

As a program it holds a resource while a command runs, and stops the command before another owner can hold the
resource, unless this program is stopped meanwhile (SIGSTOP, Ctrl-Z): then the command ends when the program continues:

    keychain.py http://127.0.0.1:8892 nightly-report sh -c 'echo $FENCING_TOKEN; sleep 60'
"""

import concurrent.futures
import contextlib
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time

import command

TTL = 15  # seconds for which the server keeps a claim that is not renewed
MARGIN = 4  # a claim that could not be renewed is lost this time earlier
GRACE = 2  # of these the command has this time to end; the rest is a margin


class Failed(Exception):
    """The keychain says no, or is gone."""


class Keychain:
    """Its methods may be called from any thread."""

    def __init__(self, url, *options, program="locket"):
        # It has a session of its own, so that Ctrl-C reaches this program alone, which then
        # releases its claims.
        self._process = subprocess.Popen(
            [program, "keychain", "--url", url, "--notices", *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )
        self._lock = threading.Lock()  # for the lines that are written, and for these:
        self._serials = itertools.count(1)
        self._waiting = {}  # by serial: the future, and the claim if the request is one
        self._held = {}  # by resource
        self._gone = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def claim(self, resource, **args):
        """Waits for its turn. args: ttl and timeout in seconds, user_data, mode, owner."""
        claim = Claim(self, resource)
        answer = self._send("claim", resource, args, claim)
        try:
            answer.result()
        except Failed:
            raise
        except BaseException:  # such as Ctrl-C: the claim must not delay others
            self._send("release", resource)
            raise
        return claim

    def ping(self):
        self._send("ping").result()

    def close(self):
        """Gives everything back."""
        try:
            self._send("shutdown").result()
        finally:
            with contextlib.suppress(OSError):  # what it has not read
                self._process.stdin.close()
            self._process.wait()
            self._reader.join()
            self._process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _send(self, command, resource="", args=None, claim=None):
        answer = concurrent.futures.Future()
        with self._lock:
            serial = next(self._serials)
            request = {"command": command, "resource_name": resource, "serial": serial, "args": args}
            self._waiting[serial] = (answer, claim)
            try:
                if self._gone:  # a write may still succeed
                    raise OSError
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                self._process.stdin.flush()
            except (OSError, ValueError):
                del self._waiting[serial]
                raise Failed("the keychain is gone") from None
        return answer

    def _read(self):
        for line in self._process.stdout:
            with self._lock:
                self._take(json.loads(line))
        with self._lock:
            self._gone = True
            for answer, _ in self._waiting.values():
                answer.set_exception(Failed("the keychain is gone"))
            for claim in self._held.values():
                claim.lose()

    def _take(self, message):
        if "serial" not in message:  # a notice
            claim = self._held.pop(message.get("resource_name"), None)
            if claim:
                claim.lose()
            print("keychain:", message["error_message"], file=sys.stderr)
            return
        answer, claim = self._waiting.pop(message["serial"])
        if message["result"] != "succeeded":
            answer.set_exception(Failed(message["error_message"]))
            return
        if claim:  # before a notice of its loss can be read
            claim.token = message.get("token")
            self._held[claim.resource] = claim
        answer.set_result(message)


class Claim:
    """A resource that is ours until it is released or lost."""

    def __init__(self, keychain, resource):
        self.resource = resource
        self.token = None  # the fencing token: what stores the result refuses a smaller one
        self.lost = threading.Event()
        self.lost_at = math.inf  # by time.monotonic()
        self._keychain = keychain

    def lose(self):
        self.lost_at = time.monotonic()
        self.lost.set()

    def check(self):
        """Raises Failed unless the server says that the resource is ours."""
        self._keychain._send("validate", self.resource).result()

    def release(self):
        with self._keychain._lock:
            self._keychain._held.pop(self.resource, None)
        self._keychain._send("release", self.resource).result()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if not self.lost.is_set():
            self.release()


def main(url, resource, *words):
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit("stopped"))  # so that every with block ends
    times = ["--ttl", "%gs" % TTL, "--margin", "%gs" % MARGIN]
    with Keychain(url, *times, program=os.environ.get("LOCKET", "locket")) as keychain:
        with keychain.claim(resource) as claim:
            env = dict(os.environ, FENCING_TOKEN=str(claim.token))
            status = command.run(words, lambda: claim.lost_at, GRACE, env)
            if status is None:
                raise Failed("lost the claim")
    return status


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: keychain.py URL RESOURCE COMMAND...")
    try:
        sys.exit(main(*sys.argv[1:]))
    except Failed as error:
        sys.exit(str(error))
