#!/usr/bin/env python3
"""Prints every change of the resources with a prefix, with Python's standard library alone.

    python3 watch.py http://127.0.0.1:8892 jobs/

It reads server-sent events, and goes on after the last one when the connection breaks, at whatever
server the address leads to.
"""

import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request


def credentials():
    """Says who calls, if the server asks: with a bearer credential in a file, which is read for each request."""
    if "LOCKET_CREDENTIAL_FILE" not in os.environ:
        return {}
    with open(os.environ["LOCKET_CREDENTIAL_FILE"]) as file:
        return {"Authorization": "Bearer " + file.read().strip()}


def events(url, cursor):
    """Yields (id, name, data) until the stream ends. The id is where to go on."""
    resume = {"Last-Event-ID": cursor} if cursor else {}
    request = urllib.request.Request(url, headers={**resume, **credentials()})
    with urllib.request.urlopen(request, timeout=60) as answer:  # a comment comes every 15 seconds
        name = data = ""
        for line in answer:
            field, _, value = line.decode().rstrip("\n").partition(": ")
            if field == "id":
                cursor = value
            elif field == "event":
                name = value
            elif field == "data":
                data = value
            elif field == "":
                yield cursor, name, json.loads(data) if data else None
                name = data = ""


def main():
    base, prefix = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    url = base + "/v1/events/?" + urllib.parse.urlencode({"prefix": prefix})
    cursor, seen = "", {}
    while True:
        try:
            for last, name, data in events(url, cursor):
                if name == "reset":  # changes were missed; all claims are sent again
                    seen = {}
                elif name == "claim":
                    print(data["resource"], data["owner"], "is", data["status"], flush=True)
                elif name == "synced":
                    print("these were all; changes follow", flush=True)
                elif name == "transition" and data["claim"]["version"] > seen.get(data["claim"]["id"], 0):
                    claim = data["claim"]
                    seen[claim["id"]] = claim["version"]
                    print(claim["resource"], claim["owner"], data["before"], "->", claim["status"], flush=True)
                if last != cursor:
                    cursor, seen = last, {}  # nothing before it is sent again
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code != 429:
                raise
            time.sleep(1)
        except (OSError, http.client.HTTPException):
            time.sleep(1)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
