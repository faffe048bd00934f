package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/lock"
)

// nodes is the number of nodes of an ensemble.
const nodes = 3

// ensemble is three nodes of a system, all on this machine.
type ensemble struct {
	*lab
	target string
	// nodes has the leader last: in Locket, the server that decides.
	nodes []*server
	// beside is the etcd that has the log of Locket's servers.
	beside *ensemble
	// members are the nodes of the etcd inside of Locket's servers, each as NAME=HOST:PORT.
	members []string
}

// startThree starts three nodes of a target, on empty folders.
func (l *lab) startThree(target string) (*ensemble, error) { return l.startThreeFrom(target, "") }

// startThreeFrom is startThree. The first node has the data of a folder, unless that is "", and is there before the others.
func (l *lab) startThreeFrom(target, full string) (e *ensemble, err error) {
	e = &ensemble{lab: l, target: target}
	defer func() {
		if err != nil {
			e.stop()
		}
	}()
	if target == "locket" {
		if e.beside, err = l.startThree("etcd"); err != nil {
			return nil, err
		}
	}
	for range nodes {
		s, err := newServer(target)
		if err != nil {
			return nil, err
		}
		address, err := fixtures.FreeAddress()
		if err != nil {
			return nil, err
		}
		e.members = append(e.members, fmt.Sprintf("m%d=%s", len(e.nodes), address))
		e.nodes = append(e.nodes, s)
	}
	for i, s := range e.nodes {
		cmd, err := e.command(i)
		if err != nil {
			return nil, err
		}
		if i == 0 && full != "" {
			if err := os.Rename(full, s.data); err != nil {
				return nil, err
			}
		}
		if err := s.start(cmd); err != nil {
			return nil, err
		}
		if full == "" {
			continue
		}
		if err := s.await(); err != nil {
			return nil, err
		}
	}
	for _, s := range e.nodes {
		if err := s.await(); err != nil {
			return nil, err
		}
	}
	if target == "locket" || target == "embedded" { // none decides before the first call
		if err := firstLock(e.nodes[0].address); err != nil {
			return nil, err
		}
	}
	return e, e.findLeader()
}

func (e *ensemble) stop() {
	for _, s := range e.nodes {
		s.stop()
	}
	if e.beside != nil {
		e.beside.stop()
	}
}

// command returns the command that starts a node, and sets what to do when it has ended.
func (e *ensemble) command(i int) (*exec.Cmd, error) {
	e.runs++
	s, data := e.nodes[i], filepath.Join(e.folder, fmt.Sprint("run", e.runs))
	s.data = data
	s.cleanUp = func() { _ = os.RemoveAll(data) }
	var members []string
	switch e.target {
	case "locket":
		for _, s := range e.beside.nodes {
			members = append(members, "http://"+s.address)
		}
		return e.locket(s, "--log-level", "info", "--data", data, "--etcd", strings.Join(members, ",")), nil
	case "embedded":
		return e.locket(s, "--log-level", "info", "--data", data, "--node", fmt.Sprint("m", i), "--cluster", strings.Join(e.members, ",")), nil
	case "etcd":
		for i, s := range e.nodes {
			members = append(members, fmt.Sprintf("m%d=http://%s", i, s.http))
		}
		return e.etcdMember(s, fmt.Sprint("m", i), data, strings.Join(members, ",")), nil
	default:
		text := zookeeperConfig(s, data) + "initLimit=10\nsyncLimit=5\n"
		for i, s := range e.nodes {
			_, election, _ := strings.Cut(s.ops, ":")
			text += fmt.Sprintf("server.%d=%s:%s\n", i+1, s.http, election)
		}
		config := filepath.Join(data, "zoo.cfg")
		err := errors.Join(os.Mkdir(data, 0o700), os.WriteFile(config, []byte(text), 0o600),
			os.WriteFile(filepath.Join(data, "myid"), fmt.Append(nil, i+1), 0o600))
		return zookeeper(config), err
	}
}

// findLeader waits until a node leads, and makes it the last one.
func (e *ensemble) findLeader() error {
	return await(func(ctx context.Context) error {
		for i, s := range e.nodes {
			leads, err := s.leads(ctx)
			if err != nil {
				return err
			}
			if leads {
				e.nodes = append(slices.Delete(e.nodes, i, i+1), s)
				return nil
			}
		}
		return fmt.Errorf("no node of %s leads", e.target)
	})
}

func (e *ensemble) leader() *server      { return e.nodes[nodes-1] }
func (e *ensemble) followers() []*server { return e.nodes[:nodes-1] }

// leads reports whether a node is its ensemble's leader.
func (s *server) leads(ctx context.Context) (bool, error) {
	switch s.target {
	case "etcd":
		text, err := get(ctx, "http://"+s.address+"/metrics")
		return strings.Contains(text, "\netcd_server_is_leader 1\n"), err
	case "zookeeper":
		text, err := zookeeperStatus(ctx, s.address)
		return strings.Contains(text, "Mode: leader"), err
	}
	log := s.output.String()
	return strings.LastIndex(log, "this server decides") > strings.LastIndex(log, "another server decides"), nil
}

// get reads a page.
func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(text), err
}

// firstLock has a new client take one lock.
func firstLock(address string) error {
	client, err := lock.NewClient([]string{address})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = client.TryAcquire(ctx, "first")
	return errors.Join(err, client.Close())
}
