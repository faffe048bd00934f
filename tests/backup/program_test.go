package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/program/server"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// TestCheckStatus: the exit code is 0 without problems, 1 with problems, and 2 if something cannot be read or printed.
func TestCheckStatus(t *testing.T) {
	t.Parallel()
	p := filled(t, "embedded")
	wrong := filepath.Join(t.TempDir(), "wrong")
	must(t, backup.Write(wrong, changed(p.dump, faults[0].change), unchecked))
	unprintable := []string{"check", "--database", p.database, "-o", "template={{.none}}"}
	for want, commands := range [][][]string{{{"check", "--database", p.database}}, {{"check", wrong}}, {{"check", filepath.Join(t.TempDir(), "none")}, unprintable}} {
		for _, args := range commands {
			if stdout, stderr, code := harness.RunLocket(t, nil, args...); code != want {
				t.Errorf("%q: %d, want %d: %s%s", args, code, want, stdout, stderr)
			}
		}
	}
}

// TestBackupOfWrongDatabase: a database with problems gets no backup, since that could not be restored, and the previous backup stays.
func TestBackupOfWrongDatabase(t *testing.T) {
	t.Parallel()
	p := filled(t, "embedded")
	folder := t.TempDir()
	file, wrong := filepath.Join(folder, "backup"), filepath.Join(t.TempDir(), "wrong")
	must(t, backup.Write(file, p.dump, unchecked))
	before, err := os.ReadFile(file)
	must(t, err)
	must(t, replica.Fill(wrong, changed(p.dump, func(c *changing) {
		c.claim("lock", func(x *claim.Claim) { x.Token = x.Version + 5 })
	})))
	if stdout, stderr, code := harness.RunLocket(t, nil, "backup", file, "--data", wrong); code != 1 || !strings.Contains(stderr, "do not agree") {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
	entries, err := os.ReadDir(folder)
	must(t, err)
	if after, err := os.ReadFile(file); err != nil || len(entries) != 1 || !bytes.Equal(before, after) {
		t.Errorf("the previous backup did not stay, or stayed not alone: %v, %v", entries, err)
	}
}

// TestErrorsName: errors of backups and restores name the flag or the file that is wrong.
func TestErrorsName(t *testing.T) {
	t.Parallel()
	file, folder := backUp(t, filled(t, "embedded")), t.TempDir()
	must(t, os.WriteFile(filepath.Join(folder, "letter"), nil, 0o600))
	none := filepath.Join(folder, "none")
	for says, args := range map[string][]string{
		"--data: " + folder + ": there is something already":                                     {"restore", file, "--data", folder},
		"--database: " + folder + ": there is something already":                                 {"restore", file, "--database", "embedded:" + folder},
		"the name of the file is empty":                                                          {"backup", "", "--data", folder},
		"read " + none + ": the folder cannot be used: it has no data":                           {"backup", filepath.Join(folder, "b"), "--data", none},
		"read " + folder + ": the folder cannot be used: it has no data":                         {"check", "--data", folder},
		folder + ": is a folder, and no backup; to check a server's data, give --data " + folder: {"check", folder},
	} {
		if stdout, stderr, code := harness.RunLocket(t, nil, args...); code == 0 || !strings.Contains(stderr, says) {
			t.Errorf("%q: %d, %s%s; it should say %q", args, code, stdout, stderr, says)
		}
	}
}

// TestRestoreSays: the program prints the length of the quarantine.
func TestRestoreSays(t *testing.T) {
	t.Parallel()
	from := filled(t, "embedded")
	file := backUp(t, from)
	for want, args := range map[string][]string{
		"nothing is granted for 5m0s after": {"--quarantine", "5m"},
		`"quarantine": 300.0`:               {"--quarantine", "5m", "-o", "json"},
		" is restored\n":                    {"--revoke-all"},
	} {
		args = append([]string{"restore", file, "--data", filepath.Join(t.TempDir(), "data")}, args...)
		if stdout, stderr, code := harness.RunLocket(t, nil, args...); code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("%q: %d, %s%s", args, code, stdout, stderr)
		}
	}
}

// taken is a Sink for a backup of another time.
type taken struct {
	backup.Sink
	at claim.Time
}

func (f taken) Begin(h backup.Head) error {
	h.Taken = f.at
	return f.Sink.Begin(h)
}

func (f taken) End(h backup.Head) error {
	h.Taken = f.at
	return f.Sink.End(h)
}

// TestRestoreWhileClockIsBehind: on a machine whose clock is behind the backup a restore is refused and leaves
// nothing, unless --floor is given. Then they do.
func TestRestoreWhileClockIsBehind(t *testing.T) {
	t.Parallel()
	from := filled(t, "embedded")
	file, into := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "a")
	at := claim.Time(time.Now().Add(48 * time.Hour).UnixMicro())
	must(t, backup.Write(file, func(to backup.Sink) error { return from.dump(taken{to, at}) }, unchecked))
	if stdout, stderr, code := harness.RunLocket(t, nil, "restore", file, "--data", into); code != 1 || !strings.Contains(stderr, "behind the backup") || !strings.Contains(stderr, "--floor") {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
	if _, err := os.Stat(into); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it has left something: %v", err)
	}
	floor := uint64(at) + 1e9
	if stdout, stderr, code := harness.RunLocket(t, nil, "restore", file, "--data", into, "--floor", fmt.Sprint(floor), "--quarantine", "0s"); code != 0 {
		t.Fatalf("%d: %s%s", code, stdout, stderr)
	}
	client := embeddedIn(into).start(t).Client(t)
	for _, resource := range []string{"a new name", "d"} { // d was released in the backup
		c, err := client.CreateClaim(t.Context(), &models.CreateClaimRequest{Resource: resource, Ttl: proto.Float64(60)})
		if err != nil || c.GetToken() <= floor {
			t.Errorf("%s gets token %d, with the floor %d: %v", resource, c.GetToken(), floor, err)
		}
	}
}

// TestCheckOfDamagedFolder: a flipped bit in a file of the embedded engine is found, by a backup too, and the error names
// the file.
func TestCheckOfDamagedFolder(t *testing.T) {
	t.Parallel()
	from, p := filled(t, "embedded"), engines["embedded"](t)
	_, err := server.Restore(t.Context(), config(p), backUp(t, from), server.RestoreOptions{RevokeAll: true}) // makes a snapshot
	must(t, err)
	s := p.open(t)
	for n := range 20 {
		dbtest.Do(t, s, claim.Create{ID: fmt.Sprint("new-", n), Resource: "new", TTL: time.Minute})
	}
	must(t, s.Close())
	folder := strings.TrimPrefix(p.database, "embedded:")
	for _, pattern := range []string{"log/*.log", "snapshots/*.snap", "history.db"} {
		files, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		whole, err := os.ReadFile(files[0])
		must(t, err)
		used := len(bytes.TrimRight(whole, "\x00"))
		places := []int{0, used / 4, used / 2}
		if pattern == "history.db" {
			places = []int{0, 100} // the heads of the file, and of its first page: SQLite has no checksums of rows
		}
		for _, at := range places {
			damaged := bytes.Clone(whole)
			damaged[at] ^= 0x40
			must(t, os.WriteFile(files[0], damaged, 0o600))
			if stdout, stderr, code := harness.RunLocket(t, nil, "check", "--database", p.database); code != 1 && code != 2 || !strings.Contains(stdout+stderr, folder) {
				t.Errorf("byte %d of %d of %s: status %d, %s%s", at, used, files[0], code, stdout, stderr)
			}
			file := filepath.Join(t.TempDir(), "backup")
			if _, err := server.Backup(context.Background(), config(p), file); err == nil {
				t.Errorf("byte %d of %d of %s: there is a backup", at, used, files[0])
			}
		}
		must(t, os.WriteFile(files[0], whole, 0o600))
	}
	if stdout, stderr, code := harness.RunLocket(t, nil, "check", "--database", p.database); code != 0 {
		t.Errorf("whole again: status %d, %s%s", code, stdout, stderr)
	}
}

// TestBackupOnFullDisk: a backup that the disk has no space for fails, leaves no file, and keeps the previous backup.
func TestBackupOnFullDisk(t *testing.T) {
	t.Parallel()
	p := engines["embedded"](t)
	s := p.open(t)
	fill(t, s)
	folder := t.TempDir()
	file := filepath.Join(folder, "backup")
	_, err := server.Backup(context.Background(), config(p), file)
	must(t, err)
	before, err := os.ReadFile(file)
	must(t, err)
	for n := range 30 {
		dbtest.Do(t, s, claim.Create{ID: "large " + string(rune('a'+n)), Resource: "large", TTL: time.Minute, Value: strings.Repeat("v", 60<<10)})
	}
	must(t, s.Close())
	limited := exec.Command("sh", "-c", `ulimit -f 1024 && exec "$@"`, "sh", fixtures.LocketProgram(t), "backup", file, "--database", p.database) // the limit fails writes as a full disk does
	limited.Env = fixtures.CleanEnv()
	output, err := limited.CombinedOutput()
	if limited.ProcessState.ExitCode() != 1 || !strings.Contains(string(output), file) {
		t.Errorf("%v: %s", err, output)
	}
	entries, err := os.ReadDir(folder)
	must(t, err)
	after, err := os.ReadFile(file)
	must(t, err)
	if len(entries) != 1 || !bytes.Equal(before, after) {
		t.Errorf("it has left %v, or changed the backup before", entries)
	}
	if _, err := server.Backup(context.Background(), config(p), file); err != nil {
		t.Errorf("with room: %v", err)
	}
}
