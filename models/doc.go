// Package models is the wire contract: the messages and the service of locket.proto, generated,
// and beside them what the proto cannot say: the errors of the lock RPCs, the reasons that errors
// carry, and the key of the request id. Clients and servers share it, so it imports protobuf and
// gRPC only. Field numbers, codes and reasons that were published stay.
package models
