package console

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
)

func get(t *testing.T, address string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, address, http.NoBody)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	asked, _, _ := strings.Cut(address, "?")
	page := Pages(Provider{})[strings.TrimRight(asked, "/")]
	if page == nil {
		t.Fatalf("nothing is at %s", address)
	}
	w := httptest.NewRecorder()
	page.ServeHTTP(w, r)
	return w
}

// TestHeaders: each file has its type, may load nothing from elsewhere, and is sent again only if it has changed.
func TestHeaders(t *testing.T) {
	t.Parallel()
	for address := range Pages(Provider{}) {
		if address == Path {
			address += "/"
		}
		got := get(t, address)
		if got.Code != http.StatusOK || got.Body.Len() == 0 || !strings.Contains(got.Header().Get("Content-Type"), "/") {
			t.Errorf("%s: %d %v", address, got.Code, got.Header())
		}
		policy := got.Header().Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'self';") || strings.Contains(policy, "unsafe") || !strings.Contains(policy, "frame-ancestors 'none'") {
			t.Errorf("%s: the policy is %q", address, policy)
		}
		if got.Header().Get("X-Content-Type-Options") != "nosniff" || got.Header().Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: %v", address, got.Header())
		}
		if again := get(t, address, "If-None-Match", got.Header().Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() != 0 {
			t.Errorf("%s: unchanged it is %d", address, again.Code)
		}
	}
}

// TestProvider: the page has the name of the provider, if there is one, whatever characters are in it.
func TestProvider(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"":                            `<html lang="en">`,
		"https://login.example:8/a?b": `<html lang="en" data-provider="login.example:8" data-identities="a&#34;:">`,
	} {
		w := httptest.NewRecorder()
		Pages(Provider{URL: address, Identities: `a":`})[Path].ServeHTTP(w, httptest.NewRequest(http.MethodGet, Path+"/", http.NoBody))
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%q: %s", address, w.Body.String())
		}
	}
}

// TestAddress: the page is served where its relative URLs are right, at any prefix.
func TestAddress(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"/console": "console/", "/console//": "../../console/", "/console?code=x": "console/?code=x",
	} {
		if got := get(t, address); got.Code != http.StatusFound || got.Header().Get("Location") != want {
			t.Errorf("%s: %d %q", address, got.Code, got.Header().Get("Location"))
		}
	}
}

// TestNothingInline: the page has nothing that the policy would refuse, and loads nothing from elsewhere.
func TestNothingInline(t *testing.T) {
	t.Parallel()
	page := get(t, "/console/").Body.String()
	if regexp.MustCompile(`(?i)<script(?:\s[^>]*)?>[^<]|<style|\sstyle=|\son\w+=|javascript:`).MatchString(page) {
		t.Error("there is something inline in the page")
	}
	if regexp.MustCompile(`(?:src|href)="(?:https?:|/)`).MatchString(page) {
		t.Error("the page has an address that is not relative")
	}
}

// imported returns the modules that a module imports.
var imported = regexp.MustCompile(`(?:from|import)\s*\(?\s*['"]([^'"]+)['"]`)

// TestImports: every imported module exists.
func TestImports(t *testing.T) {
	t.Parallel()
	pages := Pages(Provider{})
	each(t, func(name string, content []byte) {
		if path.Ext(name) != ".js" || name == "vendor/uplot.js" { // it imports nothing, and contains text that looks like imports
			return
		}
		for _, found := range imported.FindAllSubmatch(content, -1) {
			to := string(found[1])
			if !strings.HasPrefix(to, ".") || pages[path.Join(Path, path.Dir(name), to)] == nil {
				t.Errorf("%s imports %s, which is not there", name, to)
			}
		}
	})
}

// each calls a function with each file.
func each(t *testing.T, do func(name string, content []byte)) {
	t.Helper()
	err := fs.WalkDir(static, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := static.ReadFile(name)
		do(strings.TrimPrefix(name, "static/"), content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestWeight: all that a browser loads has less than 120 kB, compressed.
func TestWeight(t *testing.T) {
	t.Parallel()
	sum := 0
	each(t, func(name string, content []byte) {
		if path.Ext(name) == ".txt" || path.Ext(name) == "" {
			return
		}
		var compressed bytes.Buffer
		w := gzip.NewWriter(&compressed)
		_, _ = w.Write(content)
		_ = w.Close()
		sum += compressed.Len()
	})
	t.Logf("%d bytes", sum)
	if sum == 0 || sum > 120_000 {
		t.Errorf("the console has %d bytes", sum)
	}
}

// TestVendored: the vendored modules are as tools/console-vendor fetched them, each with its licence.
func TestVendored(t *testing.T) {
	t.Parallel()
	sums, err := static.ReadFile("static/vendor/SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]string)
	for lines := bufio.NewScanner(bytes.NewReader(sums)); lines.Scan(); {
		sum, name, _ := strings.Cut(lines.Text(), "  ")
		known["vendor/"+name] = sum
	}
	each(t, func(name string, content []byte) {
		if !strings.HasPrefix(name, "vendor/") || name == "vendor/SHA256SUMS" {
			return
		}
		if sum := sha256.Sum256(content); known[name] != hex.EncodeToString(sum[:]) {
			t.Errorf("%s is not what was fetched: run make console-vendor", name)
		}
		delete(known, name)
	})
	for name := range known {
		t.Errorf("%s is missing", name)
	}
}
