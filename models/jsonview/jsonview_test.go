package jsonview_test

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

func encoded(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Seconds are floats with at most six decimals, even if they are the result of a sum.
func TestSeconds(t *testing.T) {
	t.Parallel()
	tenth, fifth := 0.1, 0.2 // their sum is 0.30000000000000004
	for s, want := range map[float64]string{
		0: "0.0", 1: "1.0", -1: "-1.0", tenth + fifth: "0.3", 89.99999999999999: "90.0", 1e-6: "0.000001", 4e-7: "0.0",
		1.5: "1.5", 3_153_600_000: "3153600000.0", 1e21: "1000000000000000000000.0",
	} {
		if got := encoded(t, jsonview.Seconds(s)); got != want {
			t.Errorf("%v: %s, want %s", s, got, want)
		}
	}
}

// Every name that is encoded can be decoded, and a value without a name is null.
func TestNames(t *testing.T) {
	t.Parallel()
	for number := range int32(len(models.Status_name)) {
		var back jsonview.Status
		text := encoded(t, jsonview.Status(number))
		switch err := json.Unmarshal([]byte(text), &back); {
		case number == 0 && text != "null":
			t.Errorf("no status: %s", text)
		case number != 0 && (err != nil || int32(back) != number):
			t.Errorf("%d: %s, %d, %v", number, text, back, err)
		}
	}
	for _, nameless := range []any{jsonview.Status(99), jsonview.Status(-1), jsonview.Mode(99), jsonview.Type(99), jsonview.Type(0)} {
		if got := encoded(t, nameless); got != "null" {
			t.Errorf("%d: %s", nameless, got)
		}
	}
	for _, text := range []string{`"nosuch"`, `""`, `"WAITING"`, `1`, `{}`} {
		var status jsonview.Status
		if err := json.Unmarshal([]byte(text), &status); err == nil {
			t.Errorf("%s was taken for %v", text, status)
		}
	}
}

// Every member is present, in order, even for an almost empty claim.
func TestEmptyClaim(t *testing.T) {
	t.Parallel()
	got := encoded(t, jsonview.OfClaim(&models.Claim{Id: "a", Resource: "r", Ttl: proto.Float64(0)}))
	want := `{"id":"a","resource":"r","owner":null,"identity":null,"mode":"exclusive","type":null,"value":null,"status":null,"status_history":[],` +
		`"created":"1970-01-01T00:00:00.000000Z","ttl":0.0,"granted_ttl":null,"active_duration":null,"waiting_duration":0.0,"user_data":null,` +
		`"token":null,"position":null,"version":0,"reason":null,"ended_by":null,"session":null,"wait_ttl":null}`
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// The time of the status comes from the history, which may be empty.
	if place := jsonview.OfPlace(&models.Claim{Id: "a"}); place.ID != "a" {
		t.Errorf("%+v", place)
	}
}

// TestFreeResource: a resource that nobody holds, though claims wait, has no holder, and neither has a folder.
func TestFreeResource(t *testing.T) {
	t.Parallel()
	for _, info := range []*models.ResourceInfo{{Resource: "r", Waiting: 1}, {Resource: "r/", Folder: true}} {
		if got := jsonview.OfResource(info, jsonview.OfPlace); got.Holder != nil || got.Holding != 0 || got.Waiting != info.GetWaiting() {
			t.Errorf("%+v", got)
		}
	}
}
