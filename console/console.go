// Package console, for this module only, is the web page at /console/ for operators of the service. It shows the holder of each lock, since
// when it holds, the waiters, and what an operator can do. This package has the files and their HTTP headers; the page does everything
// else over the public API, with the rights of its user. docs/console.md describes it.
//
// The page consists of ES modules that browsers run without a build step. Its URLs are relative, so that it works
// behind a proxy's prefix.
package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
)

//go:embed static
var static embed.FS

// Path is the path of the page.
const Path = "/console"

// policy lets the page load only what this server has; no other page may frame it.
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"

// contentTypes are the types of the files, by extension.
var contentTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}

// Provider is where people sign in with their browser.
type Provider struct {
	// URL is the URL of an OIDC provider, "" for none; Identities is the prefix of the identities of people who signed
	// in there.
	URL, Identities string
}

// Pages returns the handlers of GET, by path. They need no credentials: the files contain no secrets.
func Pages(provider Provider) map[string]http.Handler {
	pages := make(map[string]http.Handler)
	_ = fs.WalkDir(static, "static", func(name string, entry fs.DirEntry, err error) error {
		kind := contentTypes[path.Ext(name)]
		if err != nil || entry.IsDir() || kind == "" {
			return err
		}
		content, err := static.ReadFile(name)
		if name == "static/index.html" {
			content = provider.tell(content)
		}
		pages[Path+strings.TrimPrefix(name, "static")] = serve(kind, content)
		return err
	}) // embedded files can always be read
	pages[Path] = shell(pages[Path+"/index.html"])
	delete(pages, Path+"/index.html")
	return pages
}

func (p Provider) tell(page []byte) []byte {
	u, err := url.Parse(p.URL)
	if err != nil || u.Host == "" {
		return page
	}
	attributes := fmt.Sprintf(`<html lang="en" data-provider="%s" data-identities="%s">`, html.EscapeString(u.Host), html.EscapeString(p.Identities))
	return bytes.Replace(page, []byte(`<html lang="en">`), []byte(attributes), 1)
}

// serve answers with a file. Browsers cache it, and revalidate it every time.
func serve(contentType string, content []byte) http.Handler {
	sum := sha256.Sum256(content)
	tag := fmt.Sprintf("%q", base64.RawURLEncoding.EncodeToString(sum[:15]))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Type", contentType)
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cache-Control", "no-cache")
		header.Set("ETag", tag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	})
}

// shell serves the page at the only path where its relative URLs are right, with one slash at its end, and redirects to
// it. The redirect is relative too, because a proxy may have removed a prefix.
func shell(index http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked, query, _ := strings.Cut(r.RequestURI, "?")
		if strings.HasSuffix(asked, Path+"/") {
			index.ServeHTTP(w, r)
			return
		}
		slashes := len(asked) - len(strings.TrimRight(asked, "/"))
		to := strings.Repeat("../", slashes) + "console/"
		if query != "" {
			to += "?" + query
		}
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusFound)
	})
}
