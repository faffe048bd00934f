package lock

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/bearer"
)

// WithTokenFile sends the token in a file along with every call: a token that `locket token new`
// made, or one of an OIDC provider. Dial fails when the file cannot be read, or has no token in a
// line of its own. It is read again for every call, so a token that is replaced is used at once;
// while it cannot be read, the last good one is. In plain text it is sent to this machine only, or
// with WithInsecure.
func WithTokenFile(file string) DialOption {
	return withToken(func() (bearer.Source, error) { return bearer.OpenFile(file) })
}

// WithTokenSource is WithTokenFile by what gives a token for each call, such as
// bearer/clientcredentials. A call without a token fails with Unavailable.
func WithTokenSource(source bearer.Source) DialOption {
	return withToken(func() (bearer.Source, error) { return source, nil })
}

func withToken(open func() (bearer.Source, error)) DialOption {
	return func(d *dialing) {
		source, err := open()
		if err != nil {
			d.wrong = append(d.wrong, err)
			return
		}
		d.options = append(d.options, grpc.WithPerRPCCredentials(tokenCredentials{source}))
	}
}

// tokenCredentials send a token with every call.
type tokenCredentials struct{ source bearer.Source }

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (c tokenCredentials) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := c.source.Token(ctx)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. Dial has decided already: plain
// text goes to this machine only, or was asked for.
func (tokenCredentials) RequireTransportSecurity() bool { return false }

var _ credentials.PerRPCCredentials = tokenCredentials{}
