package program_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// migratingCommands returns the commands of docs/migrating.md that replace other services' commands.
func migratingCommands(t *testing.T) (lines []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/migrating.md")
	harness.Must(t, err)
	_, section, _ := strings.Cut(string(text), "## At the command line\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, found := range regexp.MustCompile("`(locket [^`]+)`").FindAllStringSubmatch(section, -1) {
		if line := strings.ReplaceAll(found[1], `\|`, "|"); line != "locket run" && line != "locket reset" {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestMigratingCommands: the commands work as the document says, one after the other.
func TestMigratingCommands(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	folder := t.TempDir()
	harness.Must(t, os.Symlink(fixtures.LocketProgram(t), filepath.Join(folder, "locket")))
	harness.Must(t, os.WriteFile(filepath.Join(folder, "make-report"), []byte("#!/bin/sh\necho the report\n"), 0o700))
	env := []string{"LOCKET_ADDRESS=" + server.Address(), "PATH=" + folder + ":" + os.Getenv("PATH")}
	harness.Create(t, client, "jobs/1", "jobs-1", time.Hour)
	lines := migratingCommands(t)
	if len(lines) < 15 {
		t.Fatalf("%q", lines)
	}
	for _, line := range lines {
		switch name := strings.Fields(line + " -")[2]; {
		case strings.Contains(line, "--hold"), strings.Contains(line, "PROPOSAL"): // until it is interrupted
			cmd := inBackground(t, line, env)
			wantHeld(t, client, name)
			if strings.Contains(line, "PROPOSAL") { // which those after it look at
				continue
			}
			harness.Must(t, cmd.Process.Signal(os.Interrupt))
			_ = cmd.Wait()
			wantFree(t, client, name)
		case strings.Contains(line, "watch"), strings.Contains(line, "--observe"):
			cmd := inBackground(t, line, env)
			harness.Eventually(t, func() error {
				if text, _ := os.ReadFile(cmd.Stdout.(*os.File).Name()); !strings.Contains(string(text), "active") && !strings.Contains(string(text), "PROPOSAL") {
					return fmt.Errorf("%s: %q", line, text)
				}
				return nil
			})
		case strings.HasSuffix(line, " ID") || strings.Contains(line, " ID "):
			if len(queue(t, client, "report").GetHolders()) == 0 {
				harness.Create(t, client, "report", "", time.Hour)
			}
			id := wantHeld(t, client, "report").GetId()
			if output, err := bash(t, strings.Replace(line, " ID", " "+id, 1), env...); err != nil {
				t.Errorf("%s: %v, %s", line, err, output)
			}
			wantFree(t, client, "report")
		default:
			output, err := bash(t, line, env...)
			if err != nil || strings.Contains(line, "make-report") && !strings.Contains(output, "the report") {
				t.Errorf("%s: %v, %s", line, err, output)
			}
		}
	}
	// The statuses that it speaks of.
	harness.Create(t, client, "report", "taken", time.Hour)
	for line, want := range map[string]int{lines[1]: 9, "locket run report --no-wait -- make-report": 124} {
		_, err := bash(t, line, env...)
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != want || !strings.Contains(line, "--no-wait") {
			t.Errorf("%s: %v, want status %d", line, err, want)
		}
	}
}

// inBackground starts a command line, with its output in a file.
func inBackground(t *testing.T, line string, env []string) *exec.Cmd {
	t.Helper()
	output, err := os.CreateTemp(t.TempDir(), "output")
	harness.Must(t, err)
	t.Cleanup(func() { output.Close() })
	cmd := exec.Command("bash", "-c", "exec "+line)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(fixtures.CleanEnv(), env...), output, output
	harness.Must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

func queue(t *testing.T, client models.LocketClient, resource string) *models.Queue {
	t.Helper()
	q, err := client.GetQueue(t.Context(), &models.GetQueueRequest{Resource: resource})
	harness.Must(t, err)
	return q
}

// wantHeld waits until a resource has a holder.
func wantHeld(t *testing.T, client models.LocketClient, resource string) *models.Claim {
	t.Helper()
	harness.Until(t, resource+" is held", func() bool { return len(queue(t, client, resource).GetHolders()) == 1 })
	return queue(t, client, resource).GetHolders()[0]
}

// wantFree waits until a resource has none.
func wantFree(t *testing.T, client models.LocketClient, resource string) {
	t.Helper()
	harness.Until(t, resource+" is free", func() bool { return len(queue(t, client, resource).GetHolders()) == 0 })
}
