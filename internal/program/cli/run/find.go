package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/locket-service/locket/internal/program/cli/exit"
)

// findCommand returns the path of a command as a shell finds it. The error has a shell's exit status.
func findCommand(name string) (path string, err error) {
	if strings.Contains(name, "/") {
		return name, unusable(name, executable(name))
	}
	err = fs.ErrNotExist
	for _, folder := range filepath.SplitList(os.Getenv("PATH")) {
		path = filepath.Join(folder, name)
		if !filepath.IsAbs(path) {
			path = "./" + path
		}
		switch wrong := executable(path); {
		case wrong == nil && name != "":
			return path, nil
		case errors.Is(wrong, fs.ErrPermission):
			err = wrong
		}
	}
	return "", unusable(name, err)
}

func executable(path string) error {
	_, err := exec.LookPath(path)
	if errors.Is(err, exec.ErrDot) {
		return nil
	}
	return err
}

// unusable returns the error for a command that cannot be used because of err, nil if that is nil.
func unusable(name string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, exec.ErrNotFound) {
		return exit.With(NotFound, fmt.Errorf("%q: command not found", name))
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return exit.With(NotExecutable, fmt.Errorf("%q cannot be executed: %w", name, err))
}
