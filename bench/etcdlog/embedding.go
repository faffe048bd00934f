package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// linked is added to Locket's program to link etcd's server.
const linked = `package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
)

func init() {
	if os.Getenv("LOCKET_NEVER") != "" {
		if node, err := embed.StartEtcd(embed.NewConfig()); err == nil {
			v3client.New(node.Server)
		}
	}
}
`

// embedding builds Locket without and with etcd's server, each with an empty cache, and prints what that adds.
func embedding(l *lab) error {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/locket-service/locket").Output()
	if err != nil {
		return err
	}
	source := strings.TrimSpace(string(out))
	overlay, _ := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(source, "cmd/locket/linked.go"): l.program("linked.go")}})
	if err := errors.Join(os.WriteFile(l.program("linked.go"), []byte(linked), 0o600), os.WriteFile(l.program("overlay.json"), overlay, 0o600)); err != nil {
		return err
	}
	fmt.Println("| Locket | lines of go.mod | binary, MB | without symbols, MB | build with an empty cache, s of processor time |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: |")
	for _, one := range []struct {
		name string
		args []string
	}{{"alone", nil}, {"with etcd linked", []string{"-overlay", l.program("overlay.json")}}} {
		row, err := l.built(source, one.args)
		if err != nil {
			return err
		}
		fmt.Printf("| %s | %s |\n", one.name, row)
	}
	return nil
}

func (l *lab) built(source string, args []string) (string, error) {
	folder, err := os.MkdirTemp(l.folder, "build")
	if err != nil {
		return "", err
	}
	mod := filepath.Join(folder, "go.mod")
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			return "", err
		}
	}
	build := func(flags string, output string) (float64, error) {
		all := append([]string{"build", "-C", source, "-mod=mod", "-modfile=" + mod, "-pgo=off", "-ldflags=" + flags, "-o", filepath.Join(folder, output)}, args...)
		cmd := exec.Command("go", append(all, "./cmd/locket")...)
		cmd.Env = append(os.Environ(), "GOCACHE="+filepath.Join(folder, "cache"))
		cmd.Stderr = os.Stderr
		err := cmd.Run()
		return (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), err
	}
	if args != nil {
		edit := exec.Command("go", "mod", "edit", "-require=go.etcd.io/etcd/server/v3@v3.7.3", mod)
		if err := edit.Run(); err != nil {
			return "", err
		}
	}
	took, err := build("", "locket")
	if err != nil {
		return "", err
	}
	if _, err := build("-s -w", "stripped"); err != nil {
		return "", err
	}
	text, err := os.ReadFile(mod)
	return fmt.Sprintf("%d | %.1f | %.1f | %.0f", strings.Count(string(text), "\n"), megabytes(filepath.Join(folder, "locket")),
		megabytes(filepath.Join(folder, "stripped")), took), err
}

func megabytes(file string) float64 {
	info, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return float64(info.Size()) / 1e6
}
