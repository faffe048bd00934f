package backup

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/replica"
)

// The environment of a process that fills a folder from a backup, and stops after some items.
const (
	fillFolder = "LOCKET_TEST_FILL_FOLDER"
	fillFrom   = "LOCKET_TEST_FILL_FROM"
	fillItems  = "LOCKET_TEST_FILL_ITEMS"
)

var errStop = errors.New("enough items")

// TestFillingProcess is the process that TestKilledRestore kills.
func TestFillingProcess(t *testing.T) {
	folder := os.Getenv(fillFolder)
	if folder == "" {
		return
	}
	items, err := strconv.Atoi(os.Getenv(fillItems))
	must(t, err)
	err = replica.Fill(folder, func(to backup.Sink) error {
		err := backup.Read(os.Getenv(fillFrom), &failingSink{to, &items, errStop})
		if errors.Is(err, errStop) {
			fmt.Println("stopped")
			select {}
		}
		return err
	})
	must(t, err)
}

// TestKilledRestore: no server serves the result of a killed restore, and the restore can be repeated.
func TestKilledRestore(t *testing.T) {
	t.Parallel()
	from := filled(t, "embedded")
	file, want := backUp(t, from), check(t, from.dump).State()
	folder := filepath.Join(t.TempDir(), "data")
	for _, items := range []int{0, 4, 10, 18} {
		killAfter(t, folder, file, items)
		if s, err := replica.Open(folder); !errors.Is(err, backup.ErrHalfRestored) {
			t.Fatalf("a server opens what was filled in part: %v, %v", s, err)
		}
		if vacant, err := replica.Vacant(folder); !vacant || err != nil {
			t.Errorf("after %d items: vacant %t, %v", items, vacant, err)
		}
	}
	must(t, replica.Fill(folder, inFile(file)))
	if k := check(t, embeddedIn(folder).dump); k.Found != 0 || k.State() != want {
		t.Errorf("the state is %s, and was %s: %v", k.State(), want, k.Problems)
	}
}

// killAfter fills a folder in a process, and kills it after some items.
func killAfter(t *testing.T, folder, file string, items int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFillingProcess$")
	cmd.Env = append(os.Environ(), fillFolder+"="+folder, fillFrom+"="+file, fillItems+"="+strconv.Itoa(items))
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if line != "stopped\n" {
		t.Fatalf("after %d items: %q, %v", items, line, err)
	}
}
