package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// Bash completes commands, flags and values without the package bash-completion.
func TestBashWithoutPackage(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	harness.Must(t, os.Symlink(fixtures.LocketProgram(t), filepath.Join(folder, "locket")))
	for line, want := range map[string]string{
		"locket explai":             "explain",
		"locket lock --presenc":     "--presence",
		"locket claims --sort=olde": "oldest",
	} {
		cmd := exec.CommandContext(t.Context(), "bash", "--norc", "--noprofile", "-c", `source <(locket completion bash)
COMP_LINE=$1 COMP_POINT=${#1}
read -ra COMP_WORDS <<<"$1"
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
compopt() { :; }
__start_locket
printf '%s' "${COMPREPLY[@]}"`, "bash", line)
		cmd.Dir, cmd.Env = folder, append(fixtures.CleanEnv(), "PATH="+folder+":"+os.Getenv("PATH"))
		if output, err := cmd.CombinedOutput(); err != nil || string(output) != want {
			t.Errorf("%q: %v, %q, want %q", line, err, output, want)
		}
	}
}
