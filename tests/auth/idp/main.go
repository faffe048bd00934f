// Program idp is a SAML identity provider for tests: idp ADDRESS. Whoever reaches it may add
// users (PUT /users/NAME) and service providers (PUT /services/NAME).
package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"log"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/crewjam/saml/samlidp"
	dsig "github.com/russellhaering/goxmldsig"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: idp ADDRESS")
	}
	if err := serve(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func serve(address string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "identity provider of a test"},
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	server, err := samlidp.New(samlidp.Options{
		URL:         url.URL{Scheme: "http", Host: address},
		Key:         key,
		Certificate: cert,
		Store:       &samlidp.MemoryStore{},
	})
	if err != nil {
		return err
	}
	server.IDP.SignatureMethod = dsig.RSASHA256SignatureMethod // its default is SHA-1
	// Its own page for signing in forgets which request it is for.
	server.IDP.LoginURL = server.IDP.SSOURL
	return (&http.Server{Addr: address, Handler: server, ReadHeaderTimeout: 10 * time.Second}).ListenAndServe()
}
