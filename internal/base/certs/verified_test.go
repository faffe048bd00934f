package certs

import (
	"crypto/x509"
	"runtime"
	"testing"
	"time"
)

// TestVerifiedCertificates: the certificates of the maximum number of connections are cached, and are dropped when
// the connections are gone.
func TestVerifiedCertificates(t *testing.T) {
	const connections = 50_000
	var v verified
	by := &material{}
	open := make([]*x509.Certificate, connections)
	for i := range open {
		open[i] = &x509.Certificate{}
		for range 2 { // as after a change of the files
			v.remember(open[i], verification{by, time.Now().Add(time.Hour)})
		}
	}
	for i, cert := range open {
		if !v.remembers(cert, by) {
			t.Fatalf("certificate %d of %d is checked again", i, connections)
		}
		if v.remembers(cert, &material{}) {
			t.Fatal("one that was checked by other files is taken for valid")
		}
	}
	kept := open[0]
	clear(open)
	for end := time.Now().Add(2 * time.Minute); v.len() > 1; runtime.Gosched() {
		runtime.GC()
		if time.Now().After(end) {
			t.Fatalf("%d certificates are known, and one connection is open", v.len())
		}
	}
	if !v.remembers(kept, by) {
		t.Error("that of an open connection was forgotten")
	}
	runtime.KeepAlive(kept)
}

func (v *verified) len() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.known)
}
