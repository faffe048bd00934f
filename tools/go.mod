// What `make generate` runs, apart from buf itself. The module of its own keeps
// these versions out of go.mod at the root; buf and golangci-lint have one each
// (buf/, lint/), because their dependencies do not agree with these.
module github.com/locket-service/locket/tools

go 1.26

tool (
	// v1.6.2: the gRPC half of models/; its version stands in the generated file.
	google.golang.org/grpc/cmd/protoc-gen-go-grpc
	// v1.36.12: the messages of models/; a release, so that go.mod at the root can
	// require the same one (buf asks for a later commit without a tag).
	google.golang.org/protobuf/cmd/protoc-gen-go
)

require (
	google.golang.org/grpc/cmd/protoc-gen-go-grpc v1.6.2 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
