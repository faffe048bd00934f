package robustness_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// folderTTL is longer than any of these tests.
const folderTTL = time.Hour

// startInFolder starts a server of its own on a folder. Without the id of a machine a server refuses a folder that was
// replaced, since it cannot tell it from a copy of another machine's.
func startInFolder(t *testing.T, args ...string) (server *fixtures.Locket, folder string) {
	t.Helper()
	if id, err := os.ReadFile("/etc/machine-id"); err != nil || len(id) == 0 {
		t.Fatalf("this machine has no id (%v); run: tr -d - </proc/sys/kernel/random/uuid >/etc/machine-id", err)
	}
	folder = filepath.Join(t.TempDir(), "data")
	return fixtures.StartLocket(t, "embedded:"+folder, args...), folder
}

// overwrite writes a folder over another one, as `cp -a FROM/. TO` does: files that are there stay the same files.
func overwrite(t *testing.T, from, to string) {
	t.Helper()
	harness.Must(t, filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		if e.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return errors.Join(os.WriteFile(target, content, 0o600), os.Chtimes(target, info.ModTime(), info.ModTime()))
	}))
}

// refusesToStart checks that a second server on a folder does not start.
func refusesToStart(t *testing.T, folder, when, reason string) {
	t.Helper()
	second := fixtures.NewLocket(t, "embedded:"+folder)
	harness.Must(t, second.Launch())
	if code, err := second.Wait(harness.HangTimeout); err != nil || code != 1 {
		t.Fatalf("%s: a second server: status %d, %v", when, code, err)
	}
	if log := second.Log(); !strings.Contains(log, reason) {
		t.Errorf("%s: the second server says\n%s", when, log)
	}
}

// endsBecause waits until a server ends by itself with an error.
func endsBecause(t *testing.T, server *fixtures.Locket, reason string) {
	t.Helper()
	if code, err := server.Wait(harness.HangTimeout); err != nil || code != 1 {
		t.Fatalf("the server ends with %d, %v", code, err)
	}
	if log := server.Log(); !strings.Contains(log, reason) {
		t.Errorf("the server does not say %q", reason)
	}
}

// TestFolderWithoutAFile: whichever file of the folder of a server is deleted, no second server starts there.
func TestFolderWithoutAFile(t *testing.T) {
	t.Parallel()
	server, folder := startInFolder(t)
	harness.Lock(t, server.Client(t), "k", "me", folderTTL)
	harness.Must(t, server.Pause()) // it would end
	for deleted := true; deleted; {
		deleted = false
		harness.Must(t, filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() && !deleted {
				deleted = true
				harness.Must(t, os.Remove(path))
				refusesToStart(t, folder, "without "+path, "in use")
			}
			return err
		}))
	}
	harness.Must(t, server.Resume())
	endsBecause(t, server, folder)
}

// TestFolderReplaced: after a folder was moved and replaced by a copy, only the server of the copy grants locks. The
// other server takes a lock after each step, or is idle, or was paused. It ends, and says why.
func TestFolderReplaced(t *testing.T) {
	t.Parallel()
	for name, during := range map[string]struct {
		before, after func(*testing.T, *fixtures.Locket)
	}{
		"busy":   {func(*testing.T, *fixtures.Locket) {}, func(*testing.T, *fixtures.Locket) {}},
		"paused": {func(t *testing.T, s *fixtures.Locket) { harness.Must(t, s.Pause()) }, func(t *testing.T, s *fixtures.Locket) { harness.Must(t, s.Resume()) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, folder := startInFolder(t)
			client := server.Client(t)
			harness.Lock(t, client, "before", "me", folderTTL)
			harness.Must(t, os.CopyFS(folder+".copy", os.DirFS(folder)))
			during.before(t, server)
			harness.Must(t, errors.Join(os.Rename(folder, folder+".moved"), os.Rename(folder+".copy", folder)))
			second := fixtures.NewLocket(t, "embedded:"+folder)
			harness.Must(t, second.Launch())
			during.after(t, server)
			for n := range 7 {
				if token, err := harness.TryLock(t, client, fmt.Sprint("k-", n), "first", folderTTL); err == nil {
					t.Errorf("the first server has granted k-%d with token %d", n, token)
				}
			}
			endsBecause(t, server, folder+" was moved, deleted or replaced")
			harness.Must(t, second.AwaitServing(harness.HangTimeout))
			isQuarantined(t, second.Client(t), "after the copy was put there")
		})
	}
}

// TestFolderOfIdleServer: a server that nobody asks anything ends too when its folder is not its own any more.
func TestFolderOfIdleServer(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(t *testing.T, folder string){
		"moved":   func(t *testing.T, folder string) { harness.Must(t, os.Rename(folder, folder+".moved")) },
		"deleted": func(t *testing.T, folder string) { harness.Must(t, os.RemoveAll(folder)) },
		"emptied": func(t *testing.T, folder string) {
			entries, err := os.ReadDir(folder)
			harness.Must(t, err)
			for _, e := range entries {
				harness.Must(t, os.RemoveAll(filepath.Join(folder, e.Name())))
			}
		},
		"without its log": func(t *testing.T, folder string) {
			files, err := filepath.Glob(filepath.Join(folder, "log", "*.log"))
			harness.Must(t, errors.Join(err, os.Remove(files[0])))
		},
		"overwritten": func(t *testing.T, folder string) { overwrite(t, folder+".before", folder) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, folder := startInFolder(t)
			harness.Must(t, os.CopyFS(folder+".before", os.DirFS(folder)))
			harness.Must(t, server.Restart())
			do(t, folder)
			endsBecause(t, server, folder)
		})
	}
}

// isQuarantined checks that nothing is granted because grants may be missing from the database.
func isQuarantined(t *testing.T, client models.LocketClient, when string) {
	t.Helper()
	if _, err := harness.TryLock(t, client, ids.NewClaim(), "me", folderTTL); models.ReasonOf(err) != models.ReasonQuarantine {
		t.Errorf("%s: a lock of a free resource: %v", when, err)
	}
	answer, err := client.GetStatus(t.Context(), &models.GetStatusRequest{})
	if err != nil || !strings.Contains(strings.Join(answer.GetProblems(), "; "), "rolled back") {
		t.Errorf("%s: the status has %q (%v)", when, answer.GetProblems(), err)
	}
}

// rollBacks are ways for an older copy of a folder to get into its place.
var rollBacks = map[string]func(t *testing.T, older, folder string){
	"written over it": overwrite,
	"deleted, then copied": func(t *testing.T, older, folder string) {
		harness.Must(t, errors.Join(os.RemoveAll(folder), os.CopyFS(folder, os.DirFS(older))))
	},
	"moved there": func(t *testing.T, older, folder string) {
		harness.Must(t, errors.Join(os.Rename(folder, folder+".newer"), os.Rename(older, folder)))
	},
}

// TestFolderRolledBack: a server that starts on an older state of its folder notices it, whether the server before it
// had ended or was killed, and whether the copy was made while it ran or not. It does not renew locks that somebody
// else may have been granted: nothing is granted, and tokens are above all earlier ones.
func TestFolderRolledBack(t *testing.T) {
	t.Parallel()
	for name, rollBack := range rollBacks {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, killed %t", name, killed), func(t *testing.T) {
				t.Parallel()
				server, folder := startInFolder(t)
				client := server.Client(t)
				old := harness.Lock(t, client, "x", "old", folderTTL)
				end := func() {
					if killed {
						server.Kill()
					} else if code, _ := server.Terminate(); code != 0 {
						t.Fatalf("it ends with %d", code)
					}
				}
				if !killed { // otherwise the copy comes from a running server
					end()
				}
				harness.Must(t, os.CopyFS(folder+".older", os.DirFS(folder)))
				if !killed {
					harness.Must(t, server.Start())
				}
				harness.Must(t, second(client.Release(t.Context(), &models.ReleaseRequest{Resource: &models.Resource{Key: "x", Owner: "old"}})))
				highest := harness.Lock(t, client, "x", "new", folderTTL)
				end()
				rollBack(t, folder+".older", folder)
				harness.Must(t, server.Start())

				isQuarantined(t, client, "after the start")
				if _, err := client.Lock(t.Context(), &models.LockRequest{
					Resource: &models.Resource{Key: "x", Owner: "new", TypeCode: models.TypeCode_LOCK}, TtlInSeconds: 60, Token: &highest,
				}); status.Code(err) != codes.AlreadyExists { // the old holder is the holder again
					t.Errorf("a renewal by the new holder: %v", err)
				}
				if again := harness.Lock(t, client, "x", "old", folderTTL); again != old {
					t.Errorf("the old holder has token %d, and had %d", again, old)
				}
				waits := harness.Create(t, client, "free", "waits", folderTTL)
				if waits.GetVersion() <= highest {
					t.Errorf("a new claim has version %d, after token %d", waits.GetVersion(), highest)
				}
				harness.Must(t, server.Restart())
				isQuarantined(t, client, "after another start")
			})
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestFolderOfBefore: if the disk and the memory of the machine are rolled back, no server notices, but a client's
// token is higher than the server's. It gets an error of its own, and from then on nothing is granted.
func TestFolderOfBefore(t *testing.T) {
	t.Parallel()
	server, folder := startInFolder(t, "--data-witness", "")
	client := server.Client(t)
	harness.Lock(t, client, "other", "me", folderTTL)
	harness.Must(t, os.CopyFS(folder+".older", os.DirFS(folder)))
	token := harness.Lock(t, client, "x", "me", folderTTL)
	server.Kill()
	overwrite(t, folder+".older", folder)
	harness.Must(t, server.Start())

	renew := func(token uint64) error {
		return second(client.Lock(t.Context(), &models.LockRequest{
			Resource: &models.Resource{Key: "x", Owner: "me", TypeCode: models.TypeCode_LOCK}, TtlInSeconds: 60, Token: &token,
		}))
	}
	for _, wrong := range []uint64{token + 1e12, 1<<64 - 1} { // that the server cannot have given
		if err := renew(wrong); models.ReasonOf(err) != models.ReasonRolledBack {
			t.Errorf("a renewal with token %d: %v", wrong, err)
		}
	}
	harness.Lock(t, client, "granted", "me", folderTTL)
	err := renew(token)
	if models.ReasonOf(err) != models.ReasonRolledBack || !errors.Is(models.FromWire(err), models.ErrRolledBack) || status.Code(err) != codes.NotFound {
		t.Errorf("a renewal with a token that the server has forgotten: %v", err)
	}
	isQuarantined(t, client, "after a client had a token that the server has forgotten")
	waits, err := client.CreateClaim(t.Context(), &models.CreateClaimRequest{Resource: "x", Ttl: proto.Float64(60)})
	if err != nil || waits.GetVersion() <= token || waits.GetStatus() != models.Status_STATUS_WAITING {
		t.Errorf("the next claim is %v, after token %d: %v", waits, token, err)
	}
	harness.Must(t, server.Restart())
	isQuarantined(t, client, "after another start")
}

// TestFolderCopied: a copy of a folder in another place is refused, unless the file run was deleted.
func TestFolderCopied(t *testing.T) {
	t.Parallel()
	server, folder := startInFolder(t)
	harness.Lock(t, server.Client(t), "k", "me", folderTTL)
	harness.Must(t, os.CopyFS(folder+".copy", os.DirFS(folder)))
	refusesToStart(t, folder+".copy", "a copy", "is a copy of the folder "+folder)
	harness.Must(t, os.Remove(filepath.Join(folder+".copy", "run")))
	next := fixtures.StartLocket(t, "embedded:"+folder+".copy")
	isQuarantined(t, next.Client(t), "a copy that is all there is")
}
