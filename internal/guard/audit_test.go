package guard

import (
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
)

// TestAuditOfLongNames: a line has the longest names that are valid, and the beginnings of longer ones, of which the callers may send any: lines wait in
// memory while the log cannot be written.
func TestAuditOfLongNames(t *testing.T) {
	for _, asks := range []func(name string) proto.Message{
		func(name string) proto.Message {
			return &models.LockRequest{Resource: &models.Resource{Key: name, Owner: name}}
		},
		func(name string) proto.Message {
			return &models.ReleaseRequest{Resource: &models.Resource{Key: name, Owner: name}}
		},
		func(name string) proto.Message { return &models.CreateClaimRequest{Resource: name, Owner: name} },
		func(name string) proto.Message { return &models.UpdateClaimRequest{Id: name} },
		func(name string) proto.Message { return &models.EndClaimRequest{Id: name} },
		func(name string) proto.Message { return &models.GetClaimRequest{Id: name} },
		func(name string) proto.Message { return &models.AwaitClaimRequest{Id: name} },
		func(name string) proto.Message { return &models.GetSessionRequest{Id: name} },
		func(name string) proto.Message { return &models.EndSessionRequest{Id: name} },
		func(name string) proto.Message { return &models.FetchRequest{Key: name} },
		func(name string) proto.Message { return &models.GetQueueRequest{Resource: name} },
		func(name string) proto.Message { return &models.WatchRequest{Resource: &name} },
		func(name string) proto.Message {
			return &models.SessionRequest{Command: &models.SessionRequest_Open{Open: &models.OpenSession{Id: name}}}
		},
		func(name string) proto.Message {
			return &models.SessionRequest{Command: &models.SessionRequest_Lock{Lock: &models.LockCommand{Resource: name}}}
		},
		func(name string) proto.Message {
			return &models.SessionRequest{Command: &models.SessionRequest_Unlock{Unlock: &models.UnlockCommand{Resource: name}}}
		},
	} {
		for _, c := range []struct{ name, want string }{
			{strings.Repeat("é", 512), strings.Repeat("é", 512)},
			{strings.Repeat("é", 100<<10), strings.Repeat("é", 512) + "…"},
			{"a" + strings.Repeat("é", 512), "a" + strings.Repeat("é", 511) + "…"},
			{"\xff", "\xff"}, // in JSON it is valid
		} {
			message, found := asks(c.name), 0
			for _, attr := range whatOf(message) {
				switch got := attr.Value.String(); {
				case got == c.want:
					found++
				case len(got) > 100:
					t.Errorf("%T: %s has %d bytes, valid: %t, of a name of %d", message, attr.Key, len(got), utf8.ValidString(got), len(c.name))
				}
			}
			if found == 0 {
				t.Errorf("%T: a name of %d bytes is not there", message, len(c.name))
			}
		}
	}
}
