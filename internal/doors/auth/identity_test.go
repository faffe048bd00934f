package auth_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/internal/doors/auth"
)

func TestCertificates(t *testing.T) {
	uris := func(texts ...string) (all []*url.URL) {
		for _, text := range texts {
			u, err := url.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, u)
		}
		return all
	}
	name := pkix.Name{CommonName: "bbs", Organization: []string{"diego", "ops"}}
	for what, c := range map[string]struct {
		cert   x509.Certificate
		want   string // "" for an error
		groups []string
	}{
		"common name":            {x509.Certificate{Subject: name}, "cert:bbs", []string{"cert:diego", "cert:ops"}},
		"SPIFFE before it":       {x509.Certificate{Subject: name, URIs: uris("spiffe://example.org/ci/1")}, "spiffe://example.org/ci/1", []string{"spiffe://example.org/diego", "spiffe://example.org/ops"}},
		"a slash in a group":     {x509.Certificate{Subject: pkix.Name{Organization: []string{"/ops"}}, URIs: uris("spiffe://b/y")}, "spiffe://b/y", []string{"spiffe://b//ops"}},
		"no path":                {x509.Certificate{URIs: uris("spiffe://example.org")}, "spiffe://example.org", nil},
		"another URI":            {x509.Certificate{Subject: name, URIs: uris("https://example.org/")}, "cert:bbs", []string{"cert:diego", "cert:ops"}},
		"two SPIFFE ids":         {x509.Certificate{Subject: name, URIs: uris("spiffe://a/x", "spiffe://b/y")}, "", nil},
		"SPIFFE and another URI": {x509.Certificate{Subject: name, URIs: uris("https://example.org/", "spiffe://b/y")}, "", nil},
		"SPIFFE with a port":     {x509.Certificate{Subject: name, URIs: uris("spiffe://a:1/x")}, "", nil},
		"SPIFFE in capitals":     {x509.Certificate{Subject: name, URIs: uris("SPIFFE://a/../x")}, "", nil},
		"DNS name only":          {x509.Certificate{DNSNames: []string{"a.example.org"}}, "cert:a.example.org", nil},
		"no name":                {x509.Certificate{}, "", nil},
		"long":                   {x509.Certificate{Subject: pkix.Name{CommonName: strings.Repeat("x", 513)}}, "", nil},
		"control character":      {x509.Certificate{Subject: pkix.Name{CommonName: "a\nb"}}, "", nil},
		"a name that looks like": {x509.Certificate{Subject: pkix.Name{CommonName: "spiffe://example.org/root"}}, "cert:spiffe://example.org/root", nil},
		"not UTF-8":              {x509.Certificate{Subject: pkix.Name{CommonName: "a\xff"}}, "", nil},
		"too many organisations": {x509.Certificate{Subject: pkix.Name{CommonName: "a", Organization: slices.Repeat([]string{"o"}, 257)}}, "", nil},
	} {
		id, err := auth.OfCertificate(&c.cert)
		if (err == nil) != (c.want != "") || err == nil && (id.Name != c.want || !slices.Equal(id.Groups, c.groups)) {
			t.Errorf("%s: %+v, %v", what, id, err)
		}
	}
}

func TestCredentials(t *testing.T) {
	credential, hash := auth.NewCredential()
	other, otherHash := auth.NewCredential()
	if !strings.HasPrefix(credential, "locket_") || len(credential) < 45 || credential == other || strings.Contains(hash, credential) {
		t.Fatalf("%s %s", credential, hash)
	}
	credentials, err := auth.ParseCredentials([]byte("credentials:\n  - {name: ci, hash: \"" + hash + "\", groups: [builders]}\n  - {name: ci, hash: \"" + otherHash + "\"}\n"))
	if err != nil || len(credentials.Entries()) != 2 {
		t.Fatal(err)
	}
	now := time.Now()
	if id, err := credentials.Find(credential, now); err != nil || id.Credential != hash[7:19] || id.Name != "credential:ci" || !slices.Equal(id.Groups, []string{"credential:builders"}) {
		t.Errorf("%+v %v", id, err)
	}
	for _, wrong := range []string{"", credential + "x", credential[:len(credential)-1], strings.ToUpper(credential), hash, "x"} {
		if id, err := credentials.Find(wrong, now); !errors.Is(err, auth.ErrUnknownCredential) || id.Name != "" {
			t.Errorf("%q is %+v", wrong, id)
		}
	}
	for text, want := range map[string]string{
		"credentials: [{name: a, hash: x}]":                                                   "64 hexadecimal digits",
		"credentials: [{name: a, hash: \"sha256:00\"}]":                                       "64 hexadecimal digits",
		"credentials: [{hash: \"" + hash + "\"}]":                                             "is empty",
		"credentials: [{name: a, hash: \"" + hash + "\", x: 1}]":                              "not found",
		"credentials: [{name: a, hash: \"" + hash + "\"}, {name: b, hash: \"" + hash + "\"}]": "same hash",
		"credential: []": "not found",
	} {
		if _, err := auth.ParseCredentials([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if credentials, err := auth.ParseCredentials(nil); err != nil || len(credentials.Entries()) != 0 {
		t.Error(err)
	}
}

// A credential expires at its time; one without a time does not expire.
func TestCredentialExpiry(t *testing.T) {
	credential, hash := auth.NewCredential()
	end := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	for expires, ends := range map[string]bool{"": false, ", expires: 2027-01-02T03:04:05Z": true} {
		credentials, err := auth.ParseCredentials([]byte("credentials: [{name: ci, hash: \"" + hash + "\"" + expires + "}]"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := credentials.Find(credential, end.Add(-time.Second)); err != nil {
			t.Errorf("before: %v", err)
		}
		if id, err := credentials.Find(credential, end); (err != nil) != ends || errors.Is(err, auth.ErrUnknownCredential) || ends && (id.Name != "" || !strings.Contains(err.Error(), hash[7:19])) {
			t.Errorf("%q: %+v, %v", expires, id, err)
		}
	}
	if _, err := auth.ParseCredentials([]byte("credentials: [{name: ci, hash: \"" + hash + "\", expires: soon}]")); err == nil {
		t.Error("soon is no time")
	}
}

func FuzzCredentials(f *testing.F) {
	_, hash := auth.NewCredential()
	f.Add([]byte("credentials:\n  - {name: ci, hash: \""+hash+"\", groups: [builders]}\n"), "locket_x")
	f.Fuzz(func(t *testing.T, text []byte, credential string) {
		credentials, err := auth.ParseCredentials(text)
		if err != nil {
			return
		}
		if id, err := credentials.Find(credential, time.Now()); err == nil && id.Name == "" {
			t.Error("an identity without a name")
		}
	})
}

// Names are printable, and two encodings of the same text are the same name.
func TestNamesOfIdentities(t *testing.T) {
	for name, want := range map[string]string{
		"jose\u0301":             "oidc:jos\u00e9",
		"jos\u00e9":              "oidc:jos\u00e9",
		"Zo\u00eb van A":         "oidc:Zo\u00eb van A",
		"a\u200bb":               "", // zero width
		"a\u202eb":               "", // the text after it is shown from right to left
		"a\u00a0b":               "", // a blank that looks like another one
		"a\tb":                   "",
		"\ufeffa":                "",
		"a ":                     "",
		strings.Repeat("x", 513): "",
	} {
		id, err := auth.NewIdentity(auth.OIDCPrefix, name, []string{name})
		if id.Name != want || (err == nil) != (want != "") || err == nil && id.Groups[0] != want {
			t.Errorf("%q: %q, %v", name, id, err)
		}
	}
	for _, member := range []string{"identity", "identity_prefix", "group"} {
		_, err := auth.ParseRules([]byte("rules:\n  - {" + member + ": \"oidc:jose\u0301\", may: [read], resource: r}\n"))
		if err == nil || !strings.Contains(err.Error(), "line 2") || !strings.Contains(err.Error(), "NFC") {
			t.Errorf("%s: %v", member, err)
		}
	}
}
