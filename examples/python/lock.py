#!/usr/bin/python3
"""Takes a lock, prints its fencing token, and gives it back.

The stubs are generated from models/locket.proto alone:

    apt-get install protobuf-compiler protobuf-compiler-grpc python3-grpcio python3-protobuf
    protoc -I models --python_out=examples/python --grpc_python_out=examples/python \\
        --plugin=protoc-gen-grpc_python=/usr/bin/grpc_python_plugin models/locket.proto
    examples/python/lock.py 127.0.0.1:8891 nightly-report
"""

import os
import secrets
import socket
import sys

import grpc

import locket_pb2
import locket_pb2_grpc

TTL = 15  # seconds; call Lock again well before they are over, to renew
TIMEOUT = 10  # seconds for each call


def credentials():
    """Says who calls, if the server asks: with a bearer credential in a file, which is read for each request."""
    if "LOCKET_CREDENTIAL_FILE" not in os.environ:
        return []
    with open(os.environ["LOCKET_CREDENTIAL_FILE"]) as file:
        return [("authorization", "Bearer " + file.read().strip())]


def main(address, key):
    resource = locket_pb2.Resource(
        key=key,
        # Two processes with the same owner both hold the lock.
        owner="%s/%d/%s" % (socket.gethostname(), os.getpid(), secrets.token_hex(8)),
        type_code=locket_pb2.LOCK,
    )
    with grpc.insecure_channel(address) as channel:
        locket = locket_pb2_grpc.LocketStub(channel)
        try:
            grant = locket.Lock(
                locket_pb2.LockRequest(resource=resource, ttl_in_seconds=TTL),
                timeout=TIMEOUT,
                wait_for_ready=True,  # a connection that fails is tried again until then
                metadata=credentials(),
            )
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.ALREADY_EXISTS:
                sys.exit("somebody else holds %s" % key)
            raise
        try:
            # The work goes here. Send the token along with every write: what
            # stores the result refuses a token smaller than the last one that it saw.
            print(grant.token)
        finally:
            # With the token only this grant is released.
            locket.Release(
                locket_pb2.ReleaseRequest(resource=resource, token=grant.token),
                timeout=TIMEOUT,
                wait_for_ready=True,
                metadata=credentials(),
            )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: lock.py ADDRESS KEY")
    main(sys.argv[1], sys.argv[2])
