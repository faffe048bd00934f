// Package console is the web page at /console/ for those who run the service: who holds what, since when, who waits
// behind it, and what may be done about it. This package has the files and the headers with which they are served;
// all else the page does over the public API, with the rights of who looks at it. docs/console.md describes it.
//
// The page is written as ES modules that browsers run as they stand: nothing is built. Where it
// is served, its addresses are relative, so it works behind a proxy's prefix.
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

// Path is where the page is.
const Path = "/console"

// policy lets the page load what this server has, and nothing else; nobody may frame it.
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"

// contentTypes are those of the files, by their extensions.
var contentTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}

// Provider is where people sign in with their browser.
type Provider struct {
	// URL is the address of an OIDC provider, "" for none; Identities is how the identities begin of those who signed in there.
	URL, Identities string
}

// Pages returns the handlers of GET, by their paths. They are for everybody: nothing secret is in them.
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
	}) // what is embedded can be read
	pages[Path] = shell(pages[Path+"/index.html"])
	delete(pages, Path+"/index.html")
	return pages
}

// tell has the page know about the provider.
func (p Provider) tell(page []byte) []byte {
	u, err := url.Parse(p.URL)
	if err != nil || u.Host == "" {
		return page
	}
	attributes := fmt.Sprintf(`<html lang="en" data-provider="%s" data-identities="%s">`, html.EscapeString(u.Host), html.EscapeString(p.Identities))
	return bytes.Replace(page, []byte(`<html lang="en">`), []byte(attributes), 1)
}

// serve answers with a file. Browsers keep it, and ask each time whether it is still the same.
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

// shell serves the page where its relative addresses are right: at a path with one slash at its end. The redirect
// is relative too, since a proxy may have taken a prefix away.
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
