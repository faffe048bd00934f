// What `make generate` runs, apart from protoc itself. The module of its own keeps
// these versions out of go.mod at the root; golangci-lint has another (lint/), because
// its dependencies do not agree with these.
module github.com/locket-service/locket/tools

go 1.26.0

tool (
	// v2.32.0: the routes of gateway/internal/models; the runtime's version in go.mod at
	// the root.
	github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-grpc-gateway
	// v1.6.2: the gRPC half of models/; its version stands in the generated file.
	google.golang.org/grpc/cmd/protoc-gen-go-grpc
	// v1.36.12: the messages of models/; the runtime's version in go.mod at the root.
	google.golang.org/protobuf/cmd/protoc-gen-go
)

require (
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.32.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20261012220534-4341edf3f941 // indirect
	google.golang.org/grpc v1.84.0 // indirect
	google.golang.org/grpc/cmd/protoc-gen-go-grpc v1.6.2 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
