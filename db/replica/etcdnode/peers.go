package etcdnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"

	"github.com/locket-service/locket/internal/base/certs"
	"github.com/locket-service/locket/internal/base/follow"
)

const (
	// peerTimeout is how long a node may take to answer what other nodes ask on its port.
	peerTimeout = 2 * time.Second
	// maxAnswer bounds what is read of an answer.
	maxAnswer = 1 << 20

	// What etcd serves to other nodes.
	membersPath = "/members"
	hashPath    = "/members/hashkv"
	// formingPath is served by a node that waits for the others before it forms a cluster with them.
	formingPath = "/locket/forming"

	clusterHeader = "X-Etcd-Cluster-Id"
)

// peers asks other nodes, at the ports where etcd's nodes talk to each other.
type peers struct {
	scheme string
	client *http.Client
}

// errNotServed is the error of a node that does not know a path.
var errNotServed = errors.New("not found")

func tlsOf(o Options) transport.TLSInfo {
	if o.Cert == "" {
		return transport.TLSInfo{}
	}
	// Names in the certificates are checked by whoever dials. An address that a connection comes from says nothing behind NAT.
	return transport.TLSInfo{CertFile: o.Cert, KeyFile: o.Key, TrustedCAFile: o.CA, ClientCertAuth: true, SkipClientSANVerify: true}
}

func schemeOf(o Options) string {
	if o.Cert == "" {
		return "http"
	}
	return "https"
}

// followFiles has the files of the certificate followed. etcd reads them for each new connection.
func followFiles(o Options) error {
	if o.Cert == "" || o.Files == nil {
		return nil
	}
	file, err := follow.Open("--cluster-ca, --cluster-cert, --cluster-key", certs.ClientFiles{CA: o.CA, Cert: o.Cert, Key: o.Key}.Parse, o.CA, o.Cert, o.Key)
	if err == nil {
		o.Files.Add(file)
	}
	return err
}

func newPeers(o Options) (*peers, error) {
	t := &http.Transport{DialContext: (&net.Dialer{Timeout: peerTimeout}).DialContext, MaxIdleConnsPerHost: 1, IdleConnTimeout: peerTimeout}
	if o.Cert != "" {
		config, err := tlsOf(o).ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("--cluster-cert, --cluster-key, --cluster-ca: %w", err)
		}
		t.TLSClientConfig = config
	}
	return &peers{scheme: schemeOf(o), client: &http.Client{Transport: t, Timeout: peerTimeout}}, nil
}

func (p *peers) close() { p.client.CloseIdleConnections() }

func (p *peers) url(address string) string {
	return (&url.URL{Scheme: p.scheme, Host: address}).String()
}

// get reads the answer of a node.
func (p *peers) get(ctx context.Context, address, path, body string, answer any) (http.Header, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url(address)+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch {
	case err != nil:
		return nil, err
	case response.StatusCode == http.StatusNotFound:
		return nil, errNotServed
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answered %s: %.200s", address, response.Status, text)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return nil, fmt.Errorf("%s does not answer as a node of etcd: %w", address, err)
	}
	return response.Header, nil
}

// listed is an entry of the list of members, as a node has it.
type listed struct {
	ID         uint64   `json:"id"`
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peerURLs"`
	ClientURLs []string `json:"clientURLs"`
	IsLearner  bool     `json:"isLearner"`
}

// started reports whether the member has ever run.
func (m listed) started() bool { return len(m.ClientURLs) > 0 }

func (m listed) address() string { return addressOf(m.PeerURLs) }

func addressOf(urls []string) string {
	if len(urls) > 0 {
		if u, err := url.Parse(urls[0]); err == nil {
			return u.Host
		}
	}
	return ""
}

// members asks a node for the members of its cluster, and the id of the cluster.
func (p *peers) members(ctx context.Context, address string) (all []listed, cluster uint64, err error) {
	header, err := p.get(ctx, address, membersPath, "", &all)
	if err != nil {
		return nil, 0, err
	}
	if cluster, err = strconv.ParseUint(header.Get(clusterHeader), 16, 64); err != nil {
		return nil, 0, fmt.Errorf("%s does not answer as a node of etcd", address)
	}
	return all, cluster, nil
}

// revision asks a node how many changes it has carried out.
func (p *peers) revision(ctx context.Context, address string) (int64, error) {
	var answer pb.HashKVResponse
	if _, err := p.get(ctx, address, hashPath, "{}", &answer); err != nil {
		return 0, err
	}
	return answer.GetHeader().GetRevision(), nil
}
