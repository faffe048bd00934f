package grpcserver

import (
	"crypto/tls"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

const (
	// MaxRequest is the size of the largest message that is read. The largest valid one
	// has two values of 64 KiB and a few names of 1 KiB.
	MaxRequest = 256 << 10
	// maxHeader is the size of the largest header that is read, as over HTTP.
	maxHeader = 64 << 10

	// window is the flow-control window of a connection. With gRPC's 64 KiB one that carries
	// hundreds of calls spends its time on updates. That of a stream has room for a message.
	window       = 1 << 20
	streamWindow = MaxRequest
	// connectionAge is after what time, give or take a tenth, a connection takes no more calls: its
	// client connects again, shows its certificate again, and may reach another server. Its calls have
	// connectionGrace to end.
	connectionAge   = time.Hour
	connectionGrace = 10 * time.Minute

	// streamWorkers run the handlers without starting a goroutine for each call. Handlers
	// wait for the commit, so there must be as many as calls in a large batch.
	streamWorkers = 512
	// maxStreams is how many calls one connection may have under way at the same time; a client
	// begins the next when one has ended. Each call that waits is one of them.
	maxStreams = 10_000
)

// Options are the options of every gRPC server of Locket, whose calls pass the chain.
// tlsConfig may be nil.
func Options(tlsConfig *tls.Config, chain *Chain) []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxRequest),
		grpc.ForceServerCodecV2(newCodec()),
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
