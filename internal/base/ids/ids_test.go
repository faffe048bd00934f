package ids_test

import (
	"encoding/base32"
	"encoding/binary"
	"regexp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/locket-service/locket/internal/base/ids"
)

var claimID = regexp.MustCompile(`^[0-9a-v]{26}$`)

// Ids of claims rise in the order of their creation.
func TestClaimsRise(t *testing.T) {
	last := ""
	for range 10_000 {
		id := ids.NewClaim()
		if !claimID.MatchString(id) {
			t.Fatalf("%q", id)
		}
		if id <= last {
			t.Fatalf("%s after %s", id, last)
		}
		last = id
	}
}

// An id is a UUID of version 7, with the time of its creation.
func TestClaimIsUUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 3 {
			bytes, err := base32.HexEncoding.WithPadding(base32.NoPadding).DecodeString(upper(ids.NewClaim()))
			if err != nil {
				t.Fatal(err)
			}
			id, err := uuid.FromBytes(bytes)
			if err != nil || id.Version() != 7 || id.Variant() != uuid.RFC4122 {
				t.Errorf("%s: version %d, variant %s, %v", id, id.Version(), id.Variant(), err)
			}
			time.Sleep(time.Hour)
		}
	})
}

func upper(id string) string {
	text := []byte(id)
	for i, c := range text {
		if c >= 'a' {
			text[i] = c - 'a' + 'A'
		}
	}
	return string(text)
}

// A prefix of an id has bounds of the time when it was made.
func TestTimesOf(t *testing.T) {
	id := ids.NewClaim()
	bytes, err := base32.HexEncoding.WithPadding(base32.NoPadding).DecodeString(upper(id))
	if err != nil {
		t.Fatal(err)
	}
	made := time.UnixMilli(int64(binary.BigEndian.Uint64(bytes) >> 16))
	if !ids.IsClaim(id) || ids.IsClaim(id[:25]) || ids.IsClaim("nightly-2026-11-21-backups") {
		t.Errorf("%s is a claim's: %v", id, ids.IsClaim(id))
	}
	for length := 1; length <= len(id); length++ {
		first, last, ok := ids.TimesOf(id[:length])
		if within := time.Millisecond << max(0, 48-5*length); !ok || made.Before(first) || made.After(last) || last.Sub(first) >= within {
			t.Errorf("%s: %v to %v, %v, want %v", id[:length], first, last, ok, made)
		}
	}
	for _, no := range []string{"", "nightly-1", "W", "w", "0123456789abcdefghijklmnopq", "\xff"} {
		if _, _, ok := ids.TimesOf(no); ok {
			t.Errorf("%q may begin an id", no)
		}
	}
}

// Ids made at the same time differ, each in many of its random digits.
func TestDiffer(t *testing.T) {
	const makers, each = 8, 1000
	var mu sync.Mutex
	var claims, tails, requests []string
	var group sync.WaitGroup
	for range makers {
		group.Go(func() {
			for range each {
				claim, request := ids.NewClaim(), ids.NewRequest()
				mu.Lock()
				claims, tails, requests = append(claims, claim), append(tails, claim[14:]), append(requests, request)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	for name, made := range map[string][]string{"claims": claims, "the random digits of claims": tails, "requests": requests} {
		slices.Sort(made)
		if n := len(slices.Compact(made)); n != makers*each {
			t.Errorf("%s: %d of %d differ", name, n, makers*each)
		}
	}
	if id, err := uuid.Parse(requests[0]); err != nil || id.Version() != 4 {
		t.Errorf("a request's id %q: %v", requests[0], err)
	}
}
