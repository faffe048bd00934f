package replica_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// killEnv has TestKill be the process that is killed: it names the folder.
const killEnv = "RAFT_KILLED_FOLDER"

// TestKill kills a server at random moments. Everything that it has acknowledged is there afterwards, in the
// acknowledged state or the one after the next command.
func TestKill(t *testing.T) {
	if folder := os.Getenv(killEnv); folder != "" {
		makeUntilKilled(folder)
	}
	folder := filepath.Join(t.TempDir(), "data")
	acknowledged := map[string]claim.Status{}
	for range kills {
		child := exec.Command(os.Args[0], "-test.run=^TestKill$")
		child.Env = append(os.Environ(), killEnv+"="+folder)
		child.Stderr = os.Stderr
		output, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines, left := bufio.NewScanner(output), 1+rand.IntN(300)
		for lines.Scan() {
			var id string
			var status claim.Status
			if _, err := fmt.Sscan(lines.Text(), &id, &status); err != nil {
				t.Fatalf("%q: %v", lines.Text(), err)
			}
			acknowledged[id] = status
			if left--; left == 0 { // and what is still in the pipe was acknowledged too
				_ = child.Process.Kill()
			}
		}
		_ = child.Wait()
		if left > 0 {
			t.Fatal("it has ended by itself")
		}
		s := open(t, folder)
		for id, status := range acknowledged {
			c, _, _, err := s.Get(t.Context(), id, 0)
			if err != nil || c.Status < status || c.ID != id {
				t.Fatalf("%s: %s (%v), and was %s", id, c.Status, err, status)
			}
			if c.Status.Final() {
				delete(acknowledged, id)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// makeUntilKilled makes claims and ends them, and prints what was acknowledged.
func makeUntilKilled(folder string) {
	s, err := openSmall(folder)
	for n := 0; err == nil; n++ {
		id := fmt.Sprintf("%d-%d", time.Now().UnixNano(), n)
		if err = do(s, claim.Create{ID: id, Resource: fmt.Sprint(n % 7), TTL: time.Hour, Units: claim.Shared, Value: "v"}); err == nil {
			fmt.Println(id, uint8(claim.Active))
			if n%3 > 0 {
				err = do(s, claim.End{ID: id})
				fmt.Println(id, uint8(claim.Released))
			}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// do carries out a command, and returns its error or the transaction's.
func do(s db.Store, cmd claim.Command) error {
	outcome, err := db.Transact(context.Background(), s, db.Batch{Requests: []claim.Request{{Command: cmd}}})
	if err != nil {
		return err
	}
	return outcome.Answers[0].Err
}
