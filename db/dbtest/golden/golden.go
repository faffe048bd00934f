// Package golden compares what a format writes with files that an earlier locket has written.
package golden

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files that are missing; a golden file never changes: a new version of a format gets a new one")

// Update reports whether missing golden files shall be written.
func Update() bool { return *update }

// Format is a format with a golden file: testdata/NAME.hex, in hexadecimal. The name ends with the version.
type Format struct {
	Name string
	// Written is a fixed content, written by this locket.
	Written []byte
	// Again reads the file, and writes the content again.
	Again func(file []byte) ([]byte, error)
}

// Check reports formats that are not written as their golden files are, or not read.
func Check(t *testing.T, formats ...Format) {
	t.Helper()
	for _, f := range formats {
		want := read(t, f)
		if !bytes.Equal(f.Written, want) {
			t.Errorf("%s is written otherwise than before: a locket of this version cannot read it. Add a new version of the format:\n%.300x, was\n%.300x", f.Name, f.Written, want)
		}
		if got, err := f.Again(want); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is read, and written again as\n%.300x, was\n%.300x (%v)", f.Name, got, want, err)
		}
	}
}

func read(t *testing.T, f Format) []byte {
	t.Helper()
	file := filepath.Join("testdata", f.Name+".hex")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && *update {
		text = []byte(hex.EncodeToString(f.Written) + "\n")
		err = errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(file, text, 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	data, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return data
}
