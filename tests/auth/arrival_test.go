package auth_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/doors/guard"
	"github.com/locket-service/locket/models"
)

// Unfinished calls without valid credentials are terminated, over gRPC and over HTTP; calls of callers
// with credentials are not.
func TestUnfinishedRequests(t *testing.T) {
	t.Parallel()
	w := start(t, "", []string{"alice"})
	begin := func(authorization string) <-chan error {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+authorization)
		stream, err := w.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, models.Locket_CreateClaim_FullMethodName)
		must(t, err)
		ended := make(chan error, 1)
		go func() { ended <- stream.RecvMsg(&models.Claim{}) }()
		return ended
	}
	own := begin(w.credentials["alice"])
	var cut []<-chan error
	for range guard.MaxArrivals + 1 {
		cut = append(cut, begin("wrong"))
	}
	conn, err := net.Dial("tcp", w.HTTPAddress())
	must(t, err)
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprintf(conn, "POST /v1/claims HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{")
	must(t, err)
	if _, err := w.CreateClaim(w.as("alice"), &models.CreateClaimRequest{Resource: "r", Ttl: proto.Float64(60)}); err != nil {
		t.Errorf("beside unfinished requests: %v", err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	if _ = answer.Body.Close(); answer.StatusCode != http.StatusRequestTimeout {
		t.Errorf("half a body: %s", answer.Status)
	}
	for _, ended := range cut {
		<-ended
	}
	select {
	case err := <-own:
		t.Errorf("the unfinished call of a known caller: %v", err)
	default:
	}
}
