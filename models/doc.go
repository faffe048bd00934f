// Package models is the wire contract: the generated messages and service of locket.proto, and what the proto cannot
// express: the errors of the lock RPCs, the reasons of errors, and the key of the request id. Clients and servers share
// it, so it imports only protobuf and gRPC. Published field numbers, codes and reasons never change.
package models
