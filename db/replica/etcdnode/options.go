// Package etcdnode runs a node of etcd in this process, which keeps the log of a cluster of servers. The nodes of all
// servers are one etcd cluster.
//
// All data of a node is in one folder:
//
//	node.json    names this node and its cluster: see identity
//	client.sock  for etcdctl on this machine: etcdctl --endpoints unix://FOLDER/client.sock
//	member/      etcd's own files
//
// A node has one TCP port, for the other nodes and their servers (see port). Clients elsewhere have none: this process uses Node.Client.
package etcdnode

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/locket-service/locket/internal/base/follow"
	"github.com/locket-service/locket/internal/base/loopback"
)

// Options say which node to start.
type Options struct {
	// Folder is the folder of the node's data. Its parent must exist.
	Folder string
	// Name is the name of the node, which is unique in its cluster.
	Name string
	// Cluster are all nodes of a new cluster, with this one. Join is the address of a node of an existing cluster that has
	// added this one. A node with data ignores both.
	Cluster []Member
	Join    string
	// Cert and Key are this node's certificate and its key, and CA has the authority that signs the certificates of all nodes, in PEM.
	// All three or none. Whoever has a certificate by that authority may act as a node.
	Cert, Key, CA string
	// Files follows the certificate and its key, if there are any.
	Files *follow.Set `json:"-"`
	// Prefix of the keys of the log.
	Prefix string
	Log    *slog.Logger `json:"-"`
	// Exit ends the process with an error that etcd cannot survive, as a failing disk. It does not return.
	Exit func(error) `json:"-"`
}

// Member is a node by its name, and the address HOST:PORT that other nodes dial. The name of the host is resolved whenever it is dialled.
type Member struct{ Name, Address string }

// maxSocketPath is how long the path of a unix socket may be on every system.
const maxSocketPath = 103

// ParseCluster reads a list a=HOST:PORT,b=HOST:PORT.
func ParseCluster(text string) (all []Member, err error) {
	for part := range strings.SplitSeq(text, ",") {
		m, err := ParseMember(part)
		if err != nil {
			return nil, err
		}
		for _, other := range all {
			if other.Name == m.Name || other.Address == m.Address {
				return nil, fmt.Errorf("%s=%s and %s=%s: each node needs a name and an address of its own", other.Name, other.Address, m.Name, m.Address)
			}
		}
		all = append(all, m)
	}
	return all, nil
}

// ParseMember reads NAME=HOST:PORT.
func ParseMember(text string) (m Member, err error) {
	var found bool
	if m.Name, m.Address, found = strings.Cut(strings.TrimSpace(text), "="); !found {
		return m, fmt.Errorf("%q: write NAME=HOST:PORT", text)
	}
	return m, errors.Join(checkName(m.Name), CheckAddress(m.Address))
}

func checkName(name string) error {
	const most, allowed = 64, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"
	if name == "" || len(name) > most || strings.Trim(name, allowed) != "" {
		return fmt.Errorf("%q is no name of a node: use 1 to %d letters, digits, dots, hyphens and underscores", name, most)
	}
	return nil
}

// CheckAddress returns an error unless an address is HOST:PORT, and can be dialled.
func CheckAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is no address of a node: write HOST:PORT", address)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if ip, ipErr := netip.ParseAddr(host); err != nil || number == 0 || host == "" || ipErr == nil && ip.IsUnspecified() || strings.ContainsAny(host, "/?#@% ") {
		return fmt.Errorf("%q is no address of a node: write the HOST:PORT that the other nodes dial", address)
	}
	return nil
}

// Check returns an error in the options that needs neither files nor the network.
func (o Options) Check() error {
	if err := checkName(o.Name); err != nil {
		return err
	}
	if len(o.Cluster) > 0 && o.Join != "" {
		return errors.New("--cluster makes a new cluster, and --join joins one: give one of the two")
	}
	if o.Join != "" {
		if err := CheckAddress(o.Join); err != nil {
			return err
		}
	}
	if len(o.Cluster) > 0 && !slices.ContainsFunc(o.Cluster, func(m Member) bool { return m.Name == o.Name }) {
		return fmt.Errorf("--cluster does not have this node, %s=HOST:PORT", o.Name)
	}
	if given := (o.Cert != "") == (o.Key != "") && (o.Key != "") == (o.CA != ""); !given {
		return errors.New("--cluster-cert, --cluster-key and --cluster-ca go together: give all three, or none")
	}
	for _, m := range o.Cluster {
		if err := o.checkSecure(m.Address); err != nil {
			return err
		}
	}
	return o.checkSecure(o.Join)
}

// checkSecure returns an error for an address that needs certificates, if there are none.
func (o Options) checkSecure(address string) error {
	if o.Cert != "" || address == "" || isLoopback(address) {
		return nil
	}
	return fmt.Errorf("the node at %s is on another machine: give --cluster-cert, --cluster-key and --cluster-ca. Without them only loopback addresses are allowed, "+
		"because whoever reaches the port can change all locks", address)
}

func isLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	return loopback.Is(host)
}

// listenAddress returns where to listen if others dial an address: on loopback, or on all addresses of the machine.
func listenAddress(address string) string {
	if isLoopback(address) {
		return address
	}
	_, port, _ := net.SplitHostPort(address)
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil { // no IPv6
		return net.JoinHostPort("0.0.0.0", port)
	}
	return net.JoinHostPort("::", port)
}

// joined returns the list that ParseCluster reads, sorted by name.
func joined(all []Member) string {
	var parts []string
	for _, m := range all {
		parts = append(parts, m.Name+"="+m.Address)
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}
