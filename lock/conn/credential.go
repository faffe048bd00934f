package conn

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/bearer"
)

// WithCredentialFile sends the credential in a file along with every call: a credential that `locket credential new`
// made, or one of an OIDC provider. Dial fails when the file cannot be read, or has no credential in a
// line of its own. It is read again for every call, so a credential that is replaced is used at once;
// while it cannot be read, the last good one is. In plain text it is sent to this machine only, or
// with WithInsecure.
func WithCredentialFile(file string) Option {
	return withCredential(func() (bearer.Source, error) { return bearer.OpenFile(file) })
}

// WithCredentialSource is WithCredentialFile by what gives a credential for each call, such as
// bearer/clientcredentials. A call without a credential fails with Unavailable.
func WithCredentialSource(source bearer.Source) Option {
	return withCredential(func() (bearer.Source, error) { return source, nil })
}

func withCredential(open func() (bearer.Source, error)) Option {
	return func(d *Dialer) {
		source, err := open()
		if err != nil {
			d.wrong = append(d.wrong, err)
			return
		}
		d.options = append(d.options, grpc.WithPerRPCCredentials(bearerCredentials{source}))
	}
}

// bearerCredentials send a bearer credential with every call.
type bearerCredentials struct{ source bearer.Source }

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (c bearerCredentials) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	credential, err := c.source.Credential(ctx)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return map[string]string{"authorization": "Bearer " + credential}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. Dial has decided already: plain
// text goes to this machine only, or was asked for.
func (bearerCredentials) RequireTransportSecurity() bool { return false }

var _ credentials.PerRPCCredentials = bearerCredentials{}
