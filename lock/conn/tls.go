package conn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/locket-service/locket/internal/base/certs"
	"github.com/locket-service/locket/internal/base/loopback"
)

// Files are a client's PEM files for TLS.
type Files struct {
	// CA holds the authorities that sign the servers' certificates; "": the system's.
	CA string
	// Cert and Key are for servers that demand a client certificate. Both or none.
	Cert, Key string
}

// WithInsecure allows plain text to servers on other machines.
func WithInsecure() Option { return func(d *Dialer) { d.insecure = true } }

// WithTLS uses TLS with a configuration, which must not be changed afterwards. Unless it names a server, a server's
// certificate must be for the host of its address.
func WithTLS(config *tls.Config) Option {
	if config == nil {
		return secured("WithTLS", nil, errors.New("WithTLS: the configuration is nil"))
	}
	return secured("WithTLS", credentials.NewTLS(config), nil)
}

// WithTLSFiles uses TLS (1.2 and up). A server's certificate must be for the host of its address. Dial reads the
// files, and each handshake reads them again. While they cannot be read, or certificate and key do not match, the last
// valid ones stay in use.
func WithTLSFiles(files Files) Option {
	return func(d *Dialer) {
		client, err := certs.LoadClient(certs.ClientFiles(files))
		if err != nil {
			secured("WithTLSFiles", nil, err)(d)
			return
		}
		secured("WithTLSFiles", &fileCredentials{credentials.NewTLS(client.Config()), client}, nil)(d)
	}
}

// WithCredentials secures the connections with gRPC's transport credentials, such as a service mesh's. Locket does not
// check how safe they are.
func WithCredentials(creds credentials.TransportCredentials) Option {
	if creds == nil {
		return secured("WithCredentials", nil, errors.New("WithCredentials: the credentials are nil"))
	}
	return secured("WithCredentials", creds, nil)
}

// WithCallCredentials sends gRPC credentials with every call, such as an identity provider's. gRPC refuses to send
// them in plain text if they require transport security.
func WithCallCredentials(creds credentials.PerRPCCredentials) Option {
	return WithDialOptions(grpc.WithPerRPCCredentials(creds))
}

// security is a way to secure connections, the option that chose it, and what is wrong with that.
type security struct {
	option string
	creds  credentials.TransportCredentials
	err    error
}

func secured(option string, creds credentials.TransportCredentials, err error) Option {
	return func(d *Dialer) { d.security = append(d.security, security{option, creds, err}) }
}

// credentials decides between the ways to secure connections and plain text.
func (d *Dialer) credentials(hosts []string) (grpc.DialOption, error) {
	if d.insecure {
		secured("WithInsecure", insecure.NewCredentials(), nil)(d)
	}
	switch len(d.security) {
	case 0:
	case 1:
		return grpc.WithTransportCredentials(d.security[0].creds), d.security[0].err
	default:
		return nil, fmt.Errorf("%s and %s: only one can be given", d.security[0].option, d.security[1].option)
	}
	for _, host := range hosts {
		if !loopback.Is(host) {
			return nil, fmt.Errorf("the Locket server on %s is on another machine: give WithTLS, WithTLSFiles or WithCredentials, or WithInsecure() for plain text", host)
		}
	}
	return grpc.WithTransportCredentials(insecure.NewCredentials()), nil
}

// fileCredentials make each TLS connection by the files as they are then.
type fileCredentials struct {
	credentials.TransportCredentials // the options from the files' first content
	client                           *certs.Client
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *fileCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (secured net.Conn, info credentials.AuthInfo, err error) {
	err = c.client.Connect(ctx, func(config *tls.Config) error {
		secured, info, err = credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
		return err
	})
	return secured, info, err
}

func (c *fileCredentials) Clone() credentials.TransportCredentials { return c }
