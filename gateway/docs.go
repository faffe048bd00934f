package gateway

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"html/template"
	"net/http"
	"strings"
	"sync"
)

//go:embed docs.html
var docsPage string

// docsPolicy forbids the page to load or run anything.
const docsPolicy = "default-src 'none'; style-src 'unsafe-inline'"

// docs returns the handlers of the OpenAPI document and of the page that renders it, by path. All servers of a process share them.
var docs = sync.OnceValues(newDocs)

func newDocs() (map[string]http.Handler, error) {
	described := openAPI()
	text, err := json.MarshalIndent(described, "", "  ")
	if err != nil {
		return nil, err
	}
	functions := template.FuncMap{
		"upper": strings.ToUpper,
		"example": func(content object) (string, error) {
			json, _ := content["application/json"].(object)
			if json == nil || json["example"] == nil {
				return "", nil
			}
			return indented(json["example"])
		},
		"indented": indented,
		"schema": func(content object) string {
			if json, ok := content["application/json"].(object); ok {
				return schemaName(json["schema"].(object))
			}
			return "events"
		},
		"name": schemaName,
	}
	parsed, err := template.New("docs").Funcs(functions).Parse(docsPage)
	if err != nil {
		return nil, err
	}
	var html bytes.Buffer
	if err := parsed.Execute(&html, described); err != nil {
		return nil, err
	}
	return map[string]http.Handler{
		"/openapi.json": static("application/json", text),
		"/docs":         static("text/html; charset=utf-8", html.Bytes()),
	}, nil
}

// indented returns a value as indented JSON.
func indented(value any) (string, error) {
	text, err := json.MarshalIndent(value, "", "  ")
	return string(text), err
}

// leadTo redirects from the server's root to a path.
func leadTo(path string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", requestOf(r.Context()).base+path)
		w.WriteHeader(http.StatusFound)
	})
}

// schemaName returns a word for the type of a schema.
func schemaName(schema object) string {
	if to, ok := schema["$ref"].(string); ok {
		return to[strings.LastIndex(to, "/")+1:]
	}
	if schema["anyOf"] != nil {
		return "anything"
	}
	if whole, ok := schema["allOf"].([]any); ok {
		return schemaName(whole[0].(object))
	}
	if items, ok := schema["items"].(object); ok {
		return "array of " + schemaName(items)
	}
	if values, ok := schema["enum"].([]any); ok {
		words := make([]string, 0, len(values))
		for _, value := range values {
			if word, ok := value.(string); ok {
				words = append(words, word)
			}
		}
		return strings.Join(words, ", ")
	}
	if format, ok := schema["format"].(string); ok {
		return format
	}
	if kind, ok := schema["type"].(string); ok {
		return kind
	}
	return "anything"
}

func static(contentType string, content []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Content-Security-Policy", docsPolicy)
		_, _ = w.Write(content) // the client may have gone
	})
}
