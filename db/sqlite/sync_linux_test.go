package sqlite

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/locket-service/locket/db"
)

// syncEnv has TestFailingSync be the process whose disk fails: it names the database.
const syncEnv = "SQLITE_FAILING_SYNC"

// TestFailingSync: a commit whose sync fails may be there after a restart, and so it is not answered as one that
// was not done.
func TestFailingSync(t *testing.T) {
	if path := os.Getenv(syncEnv); path != "" {
		failToSync(path)
	}
	path := filepath.Join(t.TempDir(), "locket.db")
	child := exec.Command(os.Args[0], "-test.run=^TestFailingSync$")
	child.Env = append(os.Environ(), syncEnv+"="+path, "GORACE=atexit_sleep_ms=0")
	if output, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for n := range 2 {
		if _, _, err := s.Get(t.Context(), fmt.Sprint(n)); err != nil {
			t.Errorf("claim %d: %v", n, err)
		}
	}
}

// failToSync makes a claim, and another one while no sync succeeds. It ends the process, as a crash does.
func failToSync(path string) {
	s, err := Open(path)
	if err == nil {
		err = s.create(0)
	}
	if err == nil {
		err = failSyncs()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if err := s.create(1); !errors.Is(err, db.ErrOutcomeUnknown) || errors.Is(err, db.ErrUnavailable) {
		fmt.Println("the commit was answered with", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// failSyncs has fsync(2) and fdatasync(2) fail with EIO from now on, in all threads of this process.
func failSyncs() error {
	const load, equal, answer = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	filter := []unix.SockFilter{
		{Code: load}, // the number of the system call
		{Code: equal, K: unix.SYS_FSYNC, Jt: 2},
		{Code: equal, K: unix.SYS_FDATASYNC, Jt: 1},
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
		{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EIO)},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	_, _, code := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if code != 0 {
		return code
	}
	return nil
}
