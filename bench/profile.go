package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// record begins to record what a server of Locket does with the processor while a measurement lasts. It returns a function that
// waits for the end of that.
func (l *lab) record(s *server) (wait func() error) {
	file := filepath.Join(l.folder, fmt.Sprintf("profile%d-%s", l.runs, s.ops))
	ended := make(chan error, 1)
	go func() {
		ended <- download(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", s.ops, max(1, int(l.duration.Seconds()))), file)
	}()
	return func() error {
		err := <-ended
		if err == nil {
			l.profiles = append(l.profiles, file)
		}
		return err
	}
}

// recordAll begins to record Locket's servers, for -profile.
func (l *lab) recordAll(servers ...*server) {
	for _, s := range servers {
		if l.profile != "" && slices.Contains([]string{"locket", "mariadb", "embedded"}, s.target) {
			s.recorded = l.record(s)
		}
	}
}

func download(url, file string) error {
	response, err := http.Get(url)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o600)
}

// mergeProfiles writes the sum of the recorded profiles to a file for Go's compiler.
func (l *lab) mergeProfiles(file string) error {
	if len(l.profiles) == 0 {
		return errors.New("-profile: no row has a load for a server of Locket")
	}
	merge := exec.Command("go", append([]string{"tool", "pprof", "-proto", "-output", file}, l.profiles...)...)
	if output, err := merge.CombinedOutput(); err != nil {
		return fmt.Errorf("go tool pprof: %w\n%s", err, output)
	}
	return nil
}
