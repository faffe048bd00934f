package grpcserver

import (
	"crypto/tls"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

const (
	// MaxRequest is the maximum size of a message from a client. The largest valid one has two values of 64 KiB and a
	// few names of 1 KiB.
	MaxRequest = 256 << 10
	// maxHeader is the maximum size of a header, as over HTTP.
	maxHeader = 64 << 10

	// window is the flow-control window of a connection. With gRPC's default of 64 KiB, a connection with hundreds of
	// calls spends its time on window updates. The window of a stream has room for a message.
	window       = 1 << 20
	streamWindow = MaxRequest
	// connectionAge is the age, give or take a tenth, when a connection stops accepting calls: its client connects
	// again, shows its certificate again, and may reach another server. Running calls have connectionGrace to end.
	connectionAge   = time.Hour
	connectionGrace = 10 * time.Minute

	// streamWorkers run handlers without starting a goroutine for each call. Handlers wait for a commit, so there must
	// be as many as calls in a large batch.
	streamWorkers = 512
	// maxStreams is how many concurrent calls one connection may have; a client waits with further ones. Each call that
	// waits for a claim is one of them.
	maxStreams = 10_000
)

// Options returns the options of every gRPC server of Locket, whose calls pass the chain. tlsConfig may be nil.
func Options(tlsConfig *tls.Config, chain *Chain) []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxRequest),
		grpc.ForceServerCodecV2(newCodec(chain)),
		grpc.ConnectionTimeout(10 * time.Second),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: 5 * time.Second, PermitWithoutStream: true,
		}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: 30 * time.Second, Timeout: 10 * time.Second, MaxConnectionAge: connectionAge, MaxConnectionAgeGrace: connectionGrace,
		}),
		grpc.MaxHeaderListSize(maxHeader),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(window),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ChainUnaryInterceptor(chain.unary),
		grpc.ChainStreamInterceptor(chain.stream),
	}
	if tlsConfig != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(tlsConfig)))
	}
	return options
}
