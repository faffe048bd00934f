package models_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
)

// trailer returns how many bytes an error has in the trailer of an answer: its message, percent-encoded, and its details.
func trailer(t *testing.T, s *status.Status) int {
	t.Helper()
	details, err := proto.Marshal(s.Proto())
	if err != nil {
		t.Fatal(err)
	}
	size := base64.RawStdEncoding.EncodedLen(len(details))
	for _, c := range []byte(s.Message()) {
		if size++; c < ' ' || c > '~' || c == '%' {
			size += 2
		}
	}
	return size
}

// TestDeniedIsShort: a denial is within the 8 KiB that many clients have for it, whatever the names in it; a valid resource's name is whole.
func TestDeniedIsShort(t *testing.T) {
	for _, name := range []string{
		"r", strings.Repeat("\x01", 1024), strings.Repeat("é", 512), strings.Repeat("%", 1024), strings.Repeat("é", 100<<10), strings.Repeat("a", 200<<10), "a" + strings.Repeat("é", 1<<10),
	} {
		message := fmt.Sprintf("no rule allows %s to hold %q", strings.Repeat("é", 256), name)
		err := models.Denied(message, "hold", name)
		s, info := status.Convert(err), models.ErrorInfoOf(err)
		if s.Code() != codes.PermissionDenied || info.GetReason() != models.ReasonPermissionDenied || info.GetMetadata()["right"] != "hold" {
			t.Fatalf("%.200s, %s", err, info.GetReason())
		}
		if size := trailer(t, s); size > 7<<10 {
			t.Errorf("the denial of a name of %d bytes, %.3q…, has %d bytes", len(name), name, size)
		}
		if named := info.GetMetadata()["resource"]; len(name) <= 1024 && named != name || !strings.HasPrefix(named, name[:1]) {
			t.Errorf("of %.3q… the denial names %.100q", name, named)
		}
	}
}
