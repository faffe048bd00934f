// Package words_test checks that words defined in docs/words.md are used for nothing else, that words replaced by the
// field's do not come back, and that sentences are plain.
package words_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const root = "../.."

// aToken finds the word token.
var aToken = regexp.MustCompile(`(?i)token`)

// standard finds terms of standards with the word token, which docs/words.md lists: credentials of OAuth 2.0 and OpenID Connect, and the
// place of the next page in AIP-158.
var standard = regexp.MustCompile(`(?i)fencing tokens?|(access|id|logout|refresh|auth|page)[ _]?tokens?\b|bearer token|oauth2\.Token|\bTokenURL|IDTokenVerifier|bucket\.Tokens\(|(credentials|decoder)\.Token\(|token_endpoint|token_type|issuer\+"/token"|"token"\}`)

// aboutCallers are files and folders about authentication, where token never means a fencing token.
var aboutCallers = []string{
	"internal/doors/auth/", "internal/doors/authn/", "bearer/", "internal/base/certs/", "internal/base/follow/", "internal/doors/guard/", "internal/program/cli/connect/", "internal/program/cli/settings/", "internal/program/cli/credential",
	"internal/program/cli/rules.go", "internal/program/cli/whoami.go", "lock/conn/", "keychain/options.go", "keychain/servers.go", "keychain/wire.go", "internal/program/server/",
	"docs/security.md", "tests/auth/harness_test.go", "tests/auth/cert_test.go", "tests/auth/real_test.go",
}

// credentials finds phrases that call a credential a token.
var credentials = regexp.MustCompile(`(?i)bearer token|token[- _]?file|auth[-_]tokens|authtokens|\btokens?\.(yaml|txt)|ci\.token|` +
	`['"` + "`" + `]token:[a-z]|token:[A-Z]{2}|Bearer TOKEN|With(Bearer)?Token(s|File|Source)?\(|TokenSource|locket token|\btoken (new|list)\b|LOCKET_TOKEN_FILE|` +
	`(forged|expired|unsigned|signed|invalid|garbage) tokens?\b|tokens? (in|from) (a|the|its) file|tokens? of (an|the) (OIDC|provider|issuer)`)

// givenUp finds the words that Locket used in a sense of its own: a door was a listener, a server or an API. The folder
// internal/doors keeps the name.
var givenUp = regexp.MustCompile(`(?i:\bdoors?\b)|[a-z]Doors?\b|\bdoors?[A-Z]`)

// TestWords: a token is the number of a grant, and nothing else; what a caller shows is a credential. What was given up is in no file.
func TestWords(t *testing.T) {
	files := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name, relErr := filepath.Rel(root, path)
		switch {
		case err != nil || relErr != nil:
			return err
		case entry.IsDir() && name != "." && (strings.HasPrefix(entry.Name(), ".") || name == "docs/sources" || name == "tests/words" || entry.Name() == "node_modules"):
			return fs.SkipDir
		case !entry.Type().IsRegular() || strings.HasPrefix(entry.Name(), ".") || name == "docs/words.md" || name == "CHANGELOG.md" || name == "locket":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || len(text) > 1<<20 || !utf8.Valid(text) {
			return err
		}
		files++
		for i, line := range strings.Split(string(text), "\n") {
			if word := misused(name, line); word != "" {
				t.Errorf("%s:%d: %q is no fencing token; docs/words.md has the word for it: %s", name, i+1, word, strings.TrimSpace(line))
			}
			if !contains(line, "door") {
				continue
			}
			if word := givenUp.FindString(strings.ReplaceAll(line, "internal/doors", "")); word != "" {
				t.Errorf("%s:%d: %q is no word of the field: %s", name, i+1, word, strings.TrimSpace(line))
			}
		}
		return nil
	})
	if err != nil || files < 100 {
		t.Errorf("%d files, %v", files, err)
	}
}

// contains reports whether a line contains a word, in whatever case. It is much faster than the expressions.
func contains(line, word string) bool { return strings.Contains(strings.ToLower(line), word) }

// misused returns the phrase of a line that wrongly calls something a token, "" if there is none.
func misused(file, line string) string {
	if !contains(line, "token") {
		return ""
	}
	if found := credentials.FindString(line); found != "" {
		return found
	}
	if !slices.ContainsFunc(aboutCallers, func(prefix string) bool { return strings.HasPrefix(file, prefix) }) {
		return ""
	}
	return aToken.FindString(standard.ReplaceAllString(line, ""))
}

// TestMisusedTokens: misused finds wrong uses of the word, and no fencing tokens and no terms of standards.
func TestMisusedTokens(t *testing.T) {
	for _, c := range []struct {
		file, line string
		misused    bool
	}{
		{"internal/program/cli/lock.go", "the fencing token of the grant", false},
		{"docs/rest.md", `  "token": 1795283222123457,`, false},
		{"docs/rest.md", "page_token=MQ", false},
		{"internal/doors/authn/oidc.go", "neither an access token nor an ID token", false},
		{"internal/doors/authn/oidc.go", "the token has expired", true},
		{"internal/doors/auth/credential.go", "func NewToken() string", true},
		{"docs/security.md", "locket token new ci", true},
		{"docs/security.md", "{identity: \"token:ci\"}", true},
		{"docs/security.md", "`token:GROUP`", true},
		{"docs/cli.md", "`token new NAME`", true},
		{"docs/security.md", "whatever token they send", true},
		{"README.md", "--token-file ci.txt", true},
		{"examples/x.py", "os.environ['LOCKET_TOKEN_FILE']", true},
	} {
		if got := misused(c.file, c.line); (got != "") != c.misused {
			t.Errorf("%s: %s: found %q", c.file, c.line, got)
		}
	}
}
