package conn

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/bearer"
)

// WithCredentialFile sends the credential in a file with every call. It is a credential that `locket credential new`
// made, or a JWT of an OIDC provider, on a line of its own. Dial returns an error if the file cannot be read or has no
// credential. The file is read again for every call, so a replaced credential is used at once; while it cannot be
// read, the last valid one is used. In plain text the credential is sent to this machine only, or with WithInsecure.
func WithCredentialFile(file string) Option {
	return func(d *Dialer) {
		source, err := bearer.OpenFile(file)
		if err != nil {
			d.wrong = append(d.wrong, err)
			return
		}
		WithCredentialSource(source)(d)
	}
}

// WithCredentialSource is like WithCredentialFile, with a source that returns a credential for each call, such as
// package bearer/clientcredentials. A call without a credential fails with Unavailable.
func WithCredentialSource(source bearer.Source) Option {
	return WithCallCredentials(bearerCredentials{source})
}

// bearerCredentials send a bearer credential with every call.
type bearerCredentials struct{ source bearer.Source }

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
