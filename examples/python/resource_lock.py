#!/usr/bin/env python3
"""Read and write locks on resources, over HTTP, with nothing but Python:

    resource_lock.py http://127.0.0.1:8892 lock CLIENT RESOURCE read|write
    resource_lock.py http://127.0.0.1:8892 locks [client=C] [resource=R] [type=read|write]
    resource_lock.py http://127.0.0.1:8892 unlock ID

A resource has one writer or many readers. A lock that cannot be had at once is refused:
exit status 1. lock prints the lock's id.
"""

import contextlib
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
import uuid

MODES = {"read": "shared", "write": "exclusive"}
TTL = 30 * 24 * 3600  # seconds after which a lock ends unless it is renewed or released


class LockException(Exception):
    """The resource is locked by others."""


class ResourceLocker:
    def __init__(self, url):
        self.claims = url.rstrip("/") + "/v1/claims/"

    def lock(self, client, resource, lock_type):
        """Returns a new lock, or raises LockException."""
        body = {
            "id": str(uuid.uuid4()),  # a POST without an answer can be repeated with it
            "owner": client,
            "resource": resource,
            "mode": MODES[lock_type],
            "ttl": TTL,
            "no_wait": True,
        }
        try:
            return self.call("POST", self.claims, body)
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise
            holder = json.load(error).get("holder", "others")
            raise LockException("%s is locked by %s" % (resource, holder)) from None

    def unlock(self, lock):
        """Ends a lock. To end it twice is no error."""
        self.call("DELETE", self.claims + urllib.parse.quote(lock["id"], safe="") + "/")

    def get_locks(self, client=None, resource=None, lock_type=None):
        """Yields the locks of a client, on a resource, of a type, or all."""
        query = {"status": "active", "limit": 1000, "owner": client, "resource": resource, "mode": MODES.get(lock_type)}
        url = self.claims + "?" + urllib.parse.urlencode({k: v for k, v in query.items() if v is not None})
        while url:
            with urllib.request.urlopen(urllib.request.Request(url, headers=credentials()), timeout=10) as answer:
                yield from json.load(answer)
                url = next_page(url, answer.headers.get("Link"))

    @contextlib.contextmanager
    def locked(self, client, resource, lock_type):
        lock = self.lock(client, resource, lock_type)
        try:
            yield lock
        finally:
            self.unlock(lock)

    def call(self, method, url, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json", **credentials()}, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read() or "null")


def credentials():
    """Says who calls, if the server asks: with a bearer credential in a file, which is read for each request."""
    if "LOCKET_CREDENTIAL_FILE" not in os.environ:
        return {}
    with open(os.environ["LOCKET_CREDENTIAL_FILE"]) as file:
        return {"Authorization": "Bearer " + file.read().strip()}


def next_page(url, link):
    """Returns the address of the next page, None if there is none."""
    return link and urllib.parse.urljoin(url, link[link.index("<") + 1 : link.index(">")])


def main(url, command, *args):
    locker = ResourceLocker(url)
    if command == "lock":
        print(locker.lock(*args)["id"])
    elif command == "unlock":
        locker.unlock({"id": args[0]})
    elif command == "locks":
        names = {"client": "client", "resource": "resource", "type": "lock_type"}
        wanted = dict(arg.split("=", 1) for arg in args)
        types = {mode: lock_type for lock_type, mode in MODES.items()}
        for lock in locker.get_locks(**{names[name]: value for name, value in wanted.items()}):
            print(lock["id"], lock["owner"], lock["resource"], types[lock["mode"]])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except LockException as error:
        sys.exit(str(error))
