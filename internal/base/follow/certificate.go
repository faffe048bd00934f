package follow

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"
)

// Certified is implemented by values with a certificate of this process. A *tls.Config has one too.
type Certified interface{ Certificate() *x509.Certificate }

// A certificate must be replaced when less than one in lastShare of its time is left, and lastDays at most: those who replace certificates
// by themselves do so before.
const (
	lastShare = 5
	lastDays  = 14 * 24 * time.Hour
)

// ending describes a certificate that ends soon, "" if the file has none.
func (f *File[T]) ending(now time.Time) string {
	var certificate *x509.Certificate
	switch value := any(f.Current()).(type) {
	case *tls.Config:
		if value != nil && len(value.Certificates) > 0 {
			certificate = value.Certificates[0].Leaf
		}
	case Certified:
		certificate = value.Certificate()
	}
	if certificate == nil {
		return ""
	}
	end := certificate.NotAfter
	last := min(lastDays, end.Sub(certificate.NotBefore)/lastShare)
	switch left := end.Sub(now); {
	case left <= 0:
		return fmt.Sprintf("the certificate of %q ended at %s", certificate.Subject, end.UTC().Format(time.RFC3339))
	case left < last:
		return fmt.Sprintf("the certificate of %q ends at %s", certificate.Subject, end.UTC().Format(time.RFC3339))
	}
	return ""
}
