#!/usr/bin/env python3
"""Runs a command while it holds a resource, over HTTP, with nothing but Python. To be copied, with
command.py beside it:

    claim.py http://127.0.0.1:8892 nightly-report 15 sh -c 'echo $FENCING_TOKEN; sleep 60'

waits in the queue, renews the claim while the command runs, stops the command before another owner can
hold the resource, and releases the claim. 15 is the TTL: if this program dies, the next one holds the
resource after this number of seconds.

A program that is stopped (SIGSTOP, Ctrl-Z, a suspended machine) neither renews the claim nor stops the
command: after the TTL the next one holds the resource while the command still runs. When this program
continues it stops the command at once. Meanwhile only the fencing token protects the resource. `locket run` has a
guard, which stops the command in time.
"""

import contextlib
import http.client
import json
import os
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid

import command

WAIT = 20  # seconds for which one request waits in the queue
TIMEOUT = 5  # seconds for a request that does not wait
TRUST = 0.75  # for this part of its TTL a claim counts as held, from the time when its renewal was sent
GRACE = 0.15  # then the command has this part of the TTL to end; the rest is a margin


class Lost(Exception):
    """The resource is not, or no longer, ours."""


def credentials():
    """Says who calls, if the server asks: with a bearer credential in a file, which is read for each request."""
    if "LOCKET_CREDENTIAL_FILE" not in os.environ:
        return {}
    with open(os.environ["LOCKET_CREDENTIAL_FILE"]) as file:
        return {"Authorization": "Bearer " + file.read().strip()}


def call(method, url, body=None, wait=0):
    """Returns the status and the JSON of an answer; 503 when there is none, or it says to ask again later."""
    data = None if body is None else json.dumps(body).encode()
    try:
        headers = {"Content-Type": "application/json", "Prefer": "wait=%d" % wait, **credentials()}
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            answer = urllib.request.urlopen(request, timeout=wait + TIMEOUT)
        except urllib.error.HTTPError as error:  # 400 and above
            answer = error
        with answer:
            later = answer.status == 429 and "Retry-After" in answer.headers  # the server has too much to do
            return 503 if later else answer.status, json.loads(answer.read() or "null")
    except (OSError, ValueError, http.client.HTTPException) as error:
        return 503, str(error)


class Claim:
    def __init__(self, url, resource, ttl, owner):
        # Since the id is chosen here, a POST can be repeated when its answer was lost:
        # it finds the claim that it made, at its place in the queue.
        self.body = {"id": str(uuid.uuid4()), "resource": resource, "ttl": ttl, "owner": owner}
        self.claims = url.rstrip("/") + "/v1/claims/"
        self.url = self.claims + self.body["id"] + "/"
        self.ttl = ttl
        self.token = None  # the fencing token
        self.trusted_until = 0
        self.over = threading.Event()

    def take(self):
        while True:
            status, answer = call("POST", self.claims, self.body, wait=WAIT)
            # The answer does not say since when the claim is held. A renewal starts the TTL anew.
            if status == 201 and self.renew():
                self.token = answer["token"]
                return
            if status < 500 and status not in (201, 202):  # 200: it has ended meanwhile
                raise Lost("no claim: %d %s" % (status, answer))
            time.sleep(1)  # a server that shuts down does not wait

    def renew(self):
        start = time.monotonic()
        status, answer = call("PATCH", self.url, {"ttl": self.ttl})
        if status == 200:
            # The server counts from the time when it read the request, which is later than start.
            self.trusted_until = start + TRUST * self.ttl
        elif status < 500:  # such as a revoked claim: another attempt would fail too
            self.lose()
        return status == 200

    def lose(self):
        self.trusted_until = min(self.trusted_until, time.monotonic())
        self.over.set()

    def keep(self):
        pause = self.ttl / 3  # time for a second attempt, and a third
        while not self.over.wait(pause):
            pause = self.ttl / 3 if self.renew() else min(1, self.ttl / 10)

    def check(self):
        """Raises Lost unless the resource is ours. Call it before each step of the work."""
        # The clock is read here because a renewal may hang: a holder that cannot renew must
        # notice by itself when its time is over.
        if self.over.is_set() or time.monotonic() >= self.trusted_until:
            raise Lost("lost the claim")

    def give_back(self):
        self.over.set()
        for _ in range(3):
            if call("DELETE", self.url)[0] < 500:
                return
            time.sleep(1)  # if no attempt succeeds, the claim ends with its TTL


@contextlib.contextmanager
def claim(url, resource, ttl=15, owner=None):
    """Holds a resource: with claim(url, "nightly-report") as held: ..."""
    held = Claim(url, resource, ttl, owner)
    try:
        held.take()
        threading.Thread(target=held.keep, daemon=True).start()
        yield held
    finally:
        held.give_back()  # also a claim that waits, so that it does not delay others


def main(url, resource, ttl, *words):
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit("stopped"))  # so that every finally runs
    owner = "%s/%d/%s" % (socket.gethostname(), os.getpid(), uuid.uuid4().hex)  # unique, since owners identify holders
    with claim(url, resource, float(ttl), owner) as held:
        print("token", held.token, flush=True)
        # What stores the result refuses a token smaller than the last one that it saw.
        env = dict(os.environ, FENCING_TOKEN=str(held.token))
        status = command.run(words, lambda: held.trusted_until, GRACE * held.ttl, env)
        if status is None:
            raise Lost("lost the claim")
    return status


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit("usage: claim.py URL RESOURCE TTL COMMAND...")
    try:
        sys.exit(main(*sys.argv[1:]))
    except Lost as error:
        sys.exit(str(error))
