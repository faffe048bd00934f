package peer_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/peer"
	"github.com/locket-service/locket/tests/harness"
)

// The environment of a process that receives a folder, and is killed.
const (
	folderEnv = "PEER_FOLDER"
	logEnv    = "PEER_LOG"
	aboutEnv  = "PEER_ABOUT"
)

// killer is a store that kills its receiver before it sends a part.
type killer struct {
	*replica.Store
	kills    atomic.Int64
	mu       sync.Mutex // guards receiver
	receiver *os.Process
}

func (k *killer) SendSnapshot(ctx context.Context, request []byte, send func([]byte) error) error {
	return k.Store.SendSnapshot(ctx, request, k.then(send))
}

func (k *killer) SendHistory(ctx context.Context, request []byte, send func([]byte) error) error {
	return k.Store.SendHistory(ctx, request, k.then(send))
}

// then kills the first receiver before the first part, the next one before the second part, and so on.
func (k *killer) then(send func([]byte) error) func([]byte) error {
	sent := int64(0)
	return func(part []byte) error {
		if sent++; sent > k.kills.Load() {
			k.mu.Lock()
			_ = k.receiver.Kill()
			k.mu.Unlock()
		}
		return send(part)
	}
}

// TestKilledReceiver: a server that is killed while it receives continues. In the end it has everything.
func TestKilledReceiver(t *testing.T) {
	if os.Getenv(folderEnv) != "" {
		receiveAll(t)
		return
	}
	s, folder := source(t, 150, 500)
	k := &killer{Store: s}
	about, to := serve(t, k).About(), filepath.Join(t.TempDir(), "to")
	newMember(t, to, logOf(t, folder))
	for {
		child := exec.Command(os.Args[0], "-test.run=^TestKilledReceiver$")
		child.Env = append(os.Environ(), folderEnv+"="+to, fmt.Sprint(logEnv, "=", logOf(t, folder)), aboutEnv+"="+string(about))
		child.Stderr = os.Stderr
		k.mu.Lock() // until it is known which process to kill
		harness.Must(t, child.Start())
		k.receiver = child.Process
		k.mu.Unlock()
		err := child.Wait()
		if err == nil {
			break
		}
		if k.kills.Add(1) > 100 || child.ProcessState.Exited() {
			t.Fatalf("after %d kills: %v", k.kills.Load(), err)
		}
	}
	if t.Logf("%d kills", k.kills.Load()); k.kills.Load() < 3 {
		t.Error("so few")
	}
	if got, want := contents(t, to), contents(t, folder); got != want {
		t.Errorf("the folder has %s, and the other one %s", got, want)
	}
}

// receiveAll receives a folder, as a server does that starts.
func receiveAll(t *testing.T) {
	folder, about := os.Getenv(folderEnv), []byte(os.Getenv(aboutEnv))
	log, err := strconv.ParseUint(os.Getenv(logEnv), 10, 64)
	harness.Must(t, err)
	p, err := peer.Listen("127.0.0.1:0", peer.Options{})
	harness.Must(t, err)
	defer p.Close()
	if received, err := filepath.Glob(filepath.Join(folder, "snapshots", "*")); len(received) == 0 || err != nil {
		harness.Must(t, replica.ReceiveSnapshot(folder, log, 0, func(request []byte, part func([]byte) error) error {
			return p.Snapshot(t.Context(), about, request, part)
		}))
	}
	s, err := replica.OpenWith(folder, replica.Options{Copied: true})
	harness.Must(t, err)
	defer func() { _ = s.Close() }()
	harness.Must(t, s.ReceiveHistory(t.Context(), func(request []byte, part func([]byte) error) error {
		return p.History(t.Context(), about, request, part)
	}))
}
