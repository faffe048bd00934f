package etcdnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	etcd "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Manager shows and changes the members of a cluster, by way of a node that runs on this machine.
type Manager struct {
	client   *etcd.Client
	endpoint string
	peers    *peers
	id       identity
}

const (
	// manageTimeout is how long a change of the members may take.
	manageTimeout = 10 * time.Second
	// changePause is the time between two attempts.
	changePause = 200 * time.Millisecond
)

// Manage connects to the running node of a folder.
func Manage(folder string) (*Manager, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	id, err := readIdentity(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is no folder of a node: use this command on a machine with a node of the cluster, with its --data", folder)
	} else if err != nil {
		return nil, err
	}
	m := &Manager{id: id, endpoint: "unix://" + filepath.Join(folder, socketFile)}
	if m.peers, err = newPeers(Options{Cert: id.Cert, Key: id.Key, CA: id.CA}); err != nil {
		return nil, err
	}
	m.client, err = etcd.New(etcd.Config{
		Endpoints: []string{m.endpoint}, Logger: zap.NewNop(), MaxUnaryRetries: 1,
		DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithChainUnaryInterceptor(failFast)},
	})
	return m, err
}

// failFast has a request fail when no node runs.
func failFast(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	return invoke(ctx, method, request, answer, conn, append(options, grpc.WaitForReady(false))...)
}

// Close closes the connection.
func (m *Manager) Close() error {
	m.peers.close()
	return m.client.Close()
}

// Client and Watch make the node a member of package etcdlog, and Prefix is the prefix of the keys of the log.
func (m *Manager) Client() *etcd.Client { return m.client }

// Watch is described with Client.
func (m *Manager) Watch() pb.WatchClient { return pb.NewWatchClient(m.client.ActiveConnection()) }

// Prefix is described with Client.
func (m *Manager) Prefix() string { return m.id.Prefix }

// Address is the address of the node, which other nodes dial.
func (m *Manager) Address() string { return m.id.Address }

// Role is the role of a node in its cluster.
type Role string

// The roles. A learner has no vote until it has caught up; an added node has never been started.
const (
	Leader   Role = "leader"
	Follower Role = "follower"
	Learner  Role = "learner"
	Added    Role = "added"
)

// NodeStatus is how a node is.
type NodeStatus struct {
	Name    string `json:"name"`
	ID      string `json:"id"`
	Address string `json:"address"`
	Role    Role   `json:"role"`
	// Answers says whether it answers at its address, and Error why not.
	Answers bool   `json:"answers"`
	Error   string `json:"error,omitempty"`
	// Behind is how many changes it has not carried out yet.
	Behind int64 `json:"behind"`

	id       uint64
	revision int64
}

func (s NodeStatus) votes() bool { return s.Role == Leader || s.Role == Follower }

// Status is how a cluster is, seen from one node.
type Status struct {
	Cluster string       `json:"cluster"`
	Node    string       `json:"node"` // that was asked
	Leader  string       `json:"leader"`
	Nodes   []NodeStatus `json:"nodes"`
	// Voters is how many nodes have a vote, Answering how many of these answer, and Quorum how many must.
	Voters    int `json:"voters"`
	Answering int `json:"answering"`
	Quorum    int `json:"quorum"`
}

// MayFail is how many more nodes may fail without an outage.
func (s Status) MayFail() int { return max(0, s.Answering-s.Quorum) }

// Problems returns the problems in words. Each names the remedy.
func (s Status) Problems() []string {
	all := []string{}
	if s.Leader == "" {
		all = append(all, fmt.Sprintf("no node leads: %d of %d nodes with a vote answer, and %d must. Start the missing ones", s.Answering, s.Voters, s.Quorum))
	}
	for _, n := range s.Nodes {
		switch {
		case n.Role == Added:
			all = append(all, fmt.Sprintf("the node at %s was added but never started: start it with --join, or type: locket cluster remove %s", n.Address, n.Address))
		case !n.Answers:
			all = append(all, fmt.Sprintf("node %s does not answer at %s: %s. Start it; if its data is lost, type: locket cluster replace %s", n.Name, n.Address, n.Error, n.Name))
		case n.Role == Learner:
			all = append(all, fmt.Sprintf("node %s has no vote yet: it is catching up", n.Name))
		}
	}
	return all
}

// Next says in words what one more failure would do.
func (s Status) Next() string {
	switch n := s.MayFail(); {
	case s.Answering < s.Quorum:
		return fmt.Sprintf("there is an outage: %d of %d nodes with a vote answer, and %d are needed", s.Answering, s.Voters, s.Quorum)
	case s.Voters == 1:
		return "a failure of the only node is an outage; add two nodes to survive one failure"
	case n == 0:
		return fmt.Sprintf("one more failure is an outage: all %d nodes that answer are needed", s.Answering)
	case n == 1:
		return "one node may fail; a second failure is an outage"
	default:
		return fmt.Sprintf("%d nodes may fail", n)
	}
}

// Status asks all nodes.
func (m *Manager) Status(ctx context.Context) (s Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, manageTimeout)
	defer cancel()
	list, err := m.client.MemberList(ctx, etcd.WithSerializable())
	if err != nil {
		return s, m.unreachable(err)
	}
	self, err := m.client.Status(ctx, m.endpoint)
	if err != nil {
		return s, m.unreachable(err)
	}
	s.Cluster, s.Node = fmt.Sprintf("%016x", list.Header.GetClusterId()), m.id.Name
	for _, member := range list.Members {
		s.Nodes = append(s.Nodes, statusOf(member, self.Leader))
	}
	slices.SortFunc(s.Nodes, func(a, b NodeStatus) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Address, b.Address))
	})
	m.askEach(ctx, s.Nodes)
	s.count()
	return s, nil
}

func (m *Manager) unreachable(err error) error {
	return fmt.Errorf("node %s does not answer on this machine, at %s. Is its server running? %w", m.id.Name, m.endpoint, err)
}

func statusOf(member *pb.Member, leader uint64) NodeStatus {
	s := NodeStatus{
		Name: member.GetName(), ID: fmt.Sprintf("%016x", member.GetID()), id: member.GetID(),
		Address: addressOf(member.GetPeerURLs()), Role: Follower,
	}
	switch {
	case s.Name == "":
		s.Role = Added
	case member.GetIsLearner():
		s.Role = Learner
	case s.id == leader:
		s.Role = Leader
	}
	return s
}

// askEach asks each node how far it is.
func (m *Manager) askEach(ctx context.Context, nodes []NodeStatus) {
	var asked sync.WaitGroup
	for i := range nodes {
		asked.Go(func() {
			revision, err := m.peers.revision(ctx, nodes[i].Address)
			nodes[i].revision, nodes[i].Answers = revision, err == nil
			if err != nil {
				nodes[i].Error = err.Error()
			}
		})
	}
	asked.Wait()
}

func (s *Status) count() {
	newest := int64(0)
	for _, n := range s.Nodes {
		newest = max(newest, n.revision)
		if !n.votes() {
			continue
		}
		s.Voters++
		if n.Answers {
			s.Answering++
		}
		if n.Role == Leader && n.Answers {
			s.Leader = n.Name
		}
	}
	s.Quorum = s.Voters/2 + 1
	for i, n := range s.Nodes {
		if n.Answers {
			s.Nodes[i].Behind = newest - n.revision
		}
	}
}

// find returns a node by its name or address. One that was added and never started has no name.
func (s Status) find(name string) (NodeStatus, bool) {
	i := slices.IndexFunc(s.Nodes, func(n NodeStatus) bool { return name != "" && (n.Name == name || n.Address == name) })
	if i < 0 {
		return NodeStatus{}, false
	}
	return s.Nodes[i], true
}

// able returns an error if the members cannot be changed now.
func (s Status) able() error {
	switch {
	case s.Answering < s.Quorum:
		return fmt.Errorf("%w: the members cannot be changed: %s", ErrRefused, s.Next())
	case s.Leader == "":
		return fmt.Errorf("%w: the members cannot be changed while no node leads: try again in a few seconds", ErrRefused)
	}
	return nil
}

// settled is Status when an election that is under way has ended.
func (m *Manager) settled(ctx context.Context) (s Status, err error) {
	for late := time.Now().Add(manageTimeout); ; {
		s, err = m.Status(ctx)
		if err != nil || s.Leader != "" || s.Answering < s.Quorum || time.Now().After(late) || !pause(ctx, changePause) {
			return s, err
		}
	}
}

// Add has the cluster expect a new node. It joins as a learner, and gets a vote when it has caught up.
func (m *Manager) Add(ctx context.Context, added Member) error {
	s, err := m.settled(ctx)
	if err != nil {
		return err
	}
	if err := s.mayAdd(added); err != nil {
		return err
	}
	return m.add(ctx, added.Address)
}

func (s Status) mayAdd(added Member) error {
	if err := s.able(); err != nil {
		return err
	}
	for _, n := range s.Nodes {
		switch {
		case n.Role == Added && n.Address == added.Address:
			return n.neverStarted()
		case n.Name == added.Name, n.Address == added.Address:
			return fmt.Errorf("%w: there is a node %s at %s already; to put a new one in its place, type: locket cluster replace %s", ErrRefused, n.Name, n.Address, n.Name)
		case !n.votes():
			return fmt.Errorf("%w: the node at %s, which was added before, has no vote yet: add one node at a time", ErrRefused, n.Address)
		case !n.Answers:
			return fmt.Errorf("%w: node %s does not answer. With another node a majority needs one more: start %s, or type: locket cluster replace %s", ErrRefused, n.Name, n.Name, n.Name)
		}
	}
	return nil
}

func (s NodeStatus) neverStarted() error {
	return fmt.Errorf("%w: a node at %s was added but never started: start it with --join, or type: locket cluster remove %s", ErrRefused, s.Address, s.Address)
}

func (m *Manager) add(ctx context.Context, address string) error {
	err := change(ctx, func(ctx context.Context) error {
		_, err := m.client.MemberAddAsLearner(ctx, []string{m.peers.url(address)})
		return err
	})
	if err != nil {
		return fmt.Errorf("add the node at %s: %w", address, err)
	}
	return nil
}

// change changes the members. etcd refuses to until all nodes have been connected for 5 s.
func change(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, manageTimeout)
	defer cancel()
	for {
		err := rpctypes.Error(do(ctx))
		if !errors.Is(err, rpctypes.ErrUnhealthy) || !pause(ctx, changePause) {
			return err
		}
	}
}

// Remove removes a node, by its name, or by its address if it was never started.
func (m *Manager) Remove(ctx context.Context, name string) error {
	s, err := m.settled(ctx)
	if err != nil {
		return err
	}
	n, there := s.find(name)
	if !there {
		return fmt.Errorf("%w: there is no node %q; the nodes are: %s", ErrRefused, name, s.names())
	}
	if err := s.mayRemove(n); err != nil {
		return err
	}
	return m.remove(ctx, n)
}

func (s Status) names() string {
	var all []Member
	for _, n := range s.Nodes {
		all = append(all, Member{cmp.Or(n.Name, "(never started)"), n.Address})
	}
	return joined(all)
}

// mayRemove returns an error if the others would not be able to go on.
func (s Status) mayRemove(n NodeStatus) error {
	if err := s.able(); err != nil || !n.votes() {
		return err
	}
	voters, answering := s.Voters-1, s.Answering
	if n.Answers {
		answering--
	}
	switch quorum := voters/2 + 1; {
	case voters == 0:
		return fmt.Errorf("%w: %s is the only node with a vote", ErrRefused, n.Name)
	case answering < quorum:
		return fmt.Errorf("%w: without node %s, %d nodes have a vote, %d of them answer, and %d must: that would be an outage. Start the missing ones first", ErrRefused, n.Name, voters, answering, quorum)
	}
	return nil
}

func (m *Manager) remove(ctx context.Context, n NodeStatus) error {
	err := change(ctx, func(ctx context.Context) error {
		_, err := m.client.MemberRemove(ctx, n.id)
		return err
	})
	if err != nil {
		return fmt.Errorf("remove node %s: %w", cmp.Or(n.Name, n.Address), err)
	}
	return nil
}

// Replace removes a node that is lost, and has the cluster expect a new one in its place. Without an address that is at the same one.
// It may be called again.
func (m *Manager) Replace(ctx context.Context, by Member) (address string, err error) {
	s, err := m.settled(ctx)
	if err != nil {
		return "", err
	}
	lost, there := s.find(by.Name)
	if waiting, is := s.find(by.Address); !there && is && waiting.Role == Added {
		return by.Address, nil // it was replaced before
	}
	by.Address = cmp.Or(by.Address, lost.Address)
	switch {
	case !there:
		return "", fmt.Errorf("%w: there is no node %q; the nodes are: %s", ErrRefused, by.Name, s.names())
	case lost.Role == Added:
		return "", lost.neverStarted()
	case lost.Answers:
		return "", fmt.Errorf("%w: node %s runs, and answers at %s: stop its server first", ErrRefused, by.Name, lost.Address)
	}
	if err := s.mayRemove(lost); err != nil {
		return "", err
	}
	rest := s
	rest.Nodes = slices.DeleteFunc(slices.Clone(s.Nodes), func(n NodeStatus) bool { return n.id == lost.id })
	if err := rest.mayAdd(by); err != nil {
		return "", err
	}
	if err := m.remove(ctx, lost); err != nil {
		return "", err
	}
	if err := m.add(ctx, by.Address); err != nil {
		return "", fmt.Errorf("node %s was removed, but: %w. Type: locket cluster add %s=%s", by.Name, err, by.Name, by.Address)
	}
	return by.Address, nil
}

// Transfer makes another node the leader. The node of this machine must be the leader.
func (m *Manager) Transfer(ctx context.Context, name string) error {
	s, err := m.settled(ctx)
	if err != nil {
		return err
	}
	n, there := s.find(name)
	switch {
	case !there:
		return fmt.Errorf("%w: there is no node %q; the nodes are: %s", ErrRefused, name, s.names())
	case n.Role == Leader:
		return nil
	case !n.votes():
		return fmt.Errorf("%w: node %s has no vote, so it cannot lead", ErrRefused, name)
	case !n.Answers:
		return fmt.Errorf("%w: node %s does not answer, so it cannot lead", ErrRefused, name)
	case s.Leader == "":
		return s.able()
	case s.Leader != s.Node:
		return fmt.Errorf("%w: node %s leads: type this command on its machine", ErrRefused, s.Leader)
	}
	ctx, cancel := context.WithTimeout(ctx, manageTimeout)
	defer cancel()
	_, err = m.client.MoveLeader(ctx, n.id)
	return err
}
