package authn

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/internal/rules/access"
)

// TestCachedJWTs: the cache has room for the JWTs of the maximum number of streams, even of large JWTs, because only
// the identities count. The cache is bounded, and expired entries make room first.
func TestCachedJWTs(t *testing.T) {
	const streams = 50_000
	id := access.Identity{Name: "oidc:" + strings.Repeat("a", 36), Groups: slices.Repeat([]string{"oidc:" + strings.Repeat("g", 36)}, 15)}
	size := sizeOf(id)
	hashOf := func(i int) (hash [sha256.Size]byte) {
		binary.BigEndian.PutUint64(hash[:], uint64(i))
		return hash
	}
	synctest.Test(t, func(t *testing.T) {
		s := &issuers{known: make(map[[sha256.Size]byte]knownJWT)}
		remember := func(from, to int) {
			for i := from; i < to; i++ {
				s.remember(hashOf(i), id, time.Now().Add(time.Hour))
			}
		}
		remember(0, streams)
		remember(0, streams) // again, after a minute
		for i := range streams {
			if _, found := s.remembered(hashOf(i)); !found {
				t.Fatalf("JWT %d of %d is checked again", i, streams)
			}
		}
		if s.cached != streams*size {
			t.Errorf("%d bytes are cached", s.cached)
		}
		time.Sleep(2 * cacheTime)
		remember(streams, 2*streams)
		for i := streams; i < 2*streams; i++ {
			if _, found := s.remembered(hashOf(i)); !found {
				t.Fatalf("JWT %d is checked again, and others have expired", i)
			}
		}
		remember(0, 4*streams)
		if s.cached > maxCached || s.cached != len(s.known)*size {
			t.Errorf("%d bytes of %d JWTs are cached", s.cached, len(s.known))
		}
	})
}
