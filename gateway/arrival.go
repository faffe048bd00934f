package gateway

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// arrive notes that the body of a request has not arrived yet; until then the request may be cut off. end must be
// called when the request ends.
func (c Config) arrive(r *http.Request) (end func()) {
	arriving, connection := &arrivingBody{ReadCloser: r.Body}, requestOf(r.Context()).connection
	arriving.arrived = c.Arrive(c.incoming(r), func() { arriving.cut(connection) })
	if arriving.arrived == nil {
		return func() {}
	}
	r.Body = arriving
	return arriving.end
}

// incoming returns the context of the calls of a request, with its peer and metadata.
func (c Config) incoming(r *http.Request) context.Context {
	return metadata.NewIncomingContext(peer.NewContext(r.Context(), requestOf(r.Context()).peer), callMetadata(c, r))
}

// arrivingBody is the body of a request that may be cut off until the body has arrived.
type arrivingBody struct {
	io.ReadCloser
	arrived func()

	mu   sync.Mutex
	came bool
}

func (b *arrivingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *arrivingBody) end() {
	b.mu.Lock()
	b.came = true
	b.mu.Unlock()
	b.arrived()
}

// cut ends the reading of the body. It does nothing after the body has arrived, because the deadline would then apply
// to the connection's next request.
func (b *arrivingBody) cut(connection *http.ResponseController) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.came {
		_ = connection.SetReadDeadline(time.Now())
	}
}
