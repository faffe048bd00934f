// What `make generate` runs, apart from protoc itself. The module of its own keeps
// these versions out of go.mod at the root; golangci-lint has another (lint/), because
// its dependencies do not agree with these.
module github.com/locket-service/locket/tools

go 1.26.0

tool (
	// v2.32.0: the routes of gateway/internal/models; the runtime's version in go.mod at
	// the root.
	// v1.6.2: the gRPC half of models/; its version stands in the generated file.
	google.golang.org/grpc/cmd/protoc-gen-go-grpc
	// v1.36.12: the messages of models/; the runtime's version in go.mod at the root.
	google.golang.org/protobuf/cmd/protoc-gen-go
)

require (
	golang.org/x/net v0.61.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261005182115-fad411399dd8 // indirect
	google.golang.org/grpc v1.84.0 // indirect
	google.golang.org/grpc/cmd/protoc-gen-go-grpc v1.6.2 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
