package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
	"github.com/locket-service/locket/tests/harness"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// claimForTest was made so long before noon.
func claimForTest(id, owner string, mode models.Mode, ago time.Duration, statuses ...models.Status) *models.Claim {
	created := timestamppb.New(noon.Add(-ago))
	c := &models.Claim{Id: id, Resource: "backup", Owner: owner, Mode: mode, Created: created, TypeCode: models.TypeCode_LOCK, Version: 7}
	for _, s := range statuses {
		c.Status = s
		c.StatusHistory = append(c.StatusHistory, &models.StatusChange{Status: s, Timestamp: created})
	}
	switch c.GetStatus() {
	case models.Status_STATUS_WAITING:
		c.WaitingDuration = ago.Seconds()
	case models.Status_STATUS_ACTIVE:
		c.ActiveDuration, c.Ttl, c.Token = proto.Float64(ago.Seconds()), proto.Float64(90.9), 1795283222123457
	}
	return c
}

const (
	isWaiting = models.Status_STATUS_WAITING
	isActive  = models.Status_STATUS_ACTIVE
	isRevoked = models.Status_STATUS_REVOKED
	alone     = models.Mode_MODE_EXCLUSIVE
	together  = models.Mode_MODE_SHARED
)

func formatForTest(t *testing.T, text string) show.Format {
	t.Helper()
	f, err := show.ParseFormat(text)
	harness.Must(t, err)
	return f
}

// viewsForTest are answers with all that may be hard to show.
func viewsForTest() map[string]show.View {
	full := claimForTest("a", "me", alone, 3*time.Minute, isWaiting, isActive)
	full.Value, full.UserData, full.Reason = "see #ops", proto.String(`{"host": "a7"}`), "why not"
	queue := &models.Queue{
		Resource: "backup", Version: 9, Token: 1795283222123457, Waiting: 5,
		Holders: []*models.Claim{claimForTest("a", "me", together, 2*time.Hour, isWaiting, isActive), claimForTest("b", "", together, 70*time.Second, isWaiting, isActive)},
		Waiters: []*models.Claim{
			claimForTest("c", "三国志", alone, 59*time.Second, isWaiting), claimForTest("d", "she", together, 50*time.Second, isWaiting),
			claimForTest("e", "he", together, 49*time.Second, isWaiting), claimForTest("f", "x", alone, 0, isWaiting),
		},
	}
	list := claimList{}
	for _, owner := range []string{"me", "", "-", "ＷＩＤＥ", "e\u0301", "two words", " edge ", "\x1b]0;title\a\x1b[2J", "a\tb\nc", `"quoted"`, "\u202eright to left", "\u009b31m"} {
		list = append(list, viewClaim(claimForTest("id", owner, alone, 26*time.Hour, isWaiting, isActive, isRevoked)))
	}
	resources := resourceList{}
	for _, r := range []*models.ResourceInfo{
		{Resource: "backup", Holder: queue.GetHolders()[0], Holding: 2, Waiting: 4, OldestWait: proto.Float64(59)},
		{Resource: "kept free", Waiting: 1, OldestWait: proto.Float64(5)}, // in a quarantine
		{Resource: "jobs/", Folder: true},
	} {
		resources = append(resources, jsonview.OfResource(r, jsonview.OfPlace))
	}
	hostile := models.Resource{Key: "k\x1b[31m", Owner: "o\r", Value: strings.Repeat("\x1b[1m", 100), TypeCode: models.TypeCode_LOCK}
	return map[string]show.View{
		"claim": viewClaim(full), "row": claimRow{viewClaim(full)}, "claims": list, "queue": viewQueue(queue), "resources": resources,
		"free": viewQueue(&models.Queue{Resource: "backup"}), "lock": heldView{jsonview.OfLock(&hostile), 7},
		"taken": takenLock{heldView{jsonview.OfLock(&hostile), 7}, true}, "locks": lockList{{Lock: jsonview.OfLock(&hostile)}},
		"released": silent{releasedLock{"k\x1b", "o\x1b", nil}}, "ended": silent{claimRow{viewClaim(full)}},
	}
}

// How answers look, to the column, on a terminal and elsewhere.
func TestGoldenLooks(t *testing.T) {
	t.Parallel()
	looks := []struct {
		name, format string
		look         show.Look
	}{
		{"terminal in color", "", show.Look{Terminal: true, Color: true, Now: noon}},
		{"terminal", "", show.Look{Terminal: true, Width: 80, Now: noon}},
		{"narrow terminal", "", show.Look{Terminal: true, Width: 40, Now: noon}},
		{"terminal, wide", "wide", show.Look{Terminal: true, Width: 40, Now: noon}},
		{"no terminal", "", show.Look{Width: 80, Now: noon}},
		{"no terminal, wide", "wide", show.Look{Width: 80, Now: noon}},
	}
	var log strings.Builder
	for _, name := range []string{"claim", "row", "claims", "queue", "resources", "free", "lock", "locks", "taken", "released", "ended"} {
		for _, l := range looks {
			text, err := show.Render(viewsForTest()[name], formatForTest(t, l.format), l.look)
			harness.Must(t, err)
			log.WriteString("--- " + name + ", " + l.name + "\n" + strings.ReplaceAll(text, "\x1b", "ESC"))
		}
	}
	golden(t, "looks", log.String())
}

// No text of a client reaches a terminal unescaped, in any format.
func TestHostileText(t *testing.T) {
	t.Parallel()
	for name, v := range viewsForTest() {
		for _, format := range []string{"json", "yaml", "name", "table", "wide", "jsonpath=$..*", "template={{.}}", ""} {
			text, err := show.Render(v, formatForTest(t, format), show.Look{Terminal: true, Now: noon})
			harness.Must(t, err)
			if bare := strings.ReplaceAll(text, "\n", ""); !printable.Is(bare) {
				t.Errorf("%s as %q: %q", name, format, text)
			}
			if lines := strings.Count(text, "\n"); format == "name" && lines != len(v.Names()) {
				t.Errorf("%s: %d lines for %q", name, lines, v.Names())
			}
		}
	}
	if got := printable.OneLine("a\nb\x1b[2J\r\xff\u202e\n"); got != `a; b\x1b[2J\r�\u202e` {
		t.Error(got)
	}
}

// JSON and YAML do not change any text.
func TestFormatsAgree(t *testing.T) {
	t.Parallel()
	for name, v := range viewsForTest() {
		asJSON, err := show.Render(v, formatForTest(t, "json"), show.Look{})
		harness.Must(t, err)
		asYAML, err := show.Render(v, formatForTest(t, "yaml"), show.Look{})
		harness.Must(t, err)
		raw, err := json.Marshal(v)
		harness.Must(t, err)
		var fromJSON, fromYAML, want any
		harness.Must(t, json.Unmarshal([]byte(asJSON), &fromJSON))
		harness.Must(t, json.Unmarshal(raw, &want))
		harness.Must(t, yaml.Unmarshal([]byte(asYAML), &fromYAML))
		through, err := json.Marshal(fromYAML)
		harness.Must(t, err)
		again, err := json.Marshal(want)
		harness.Must(t, err)
		if same, err := json.Marshal(fromJSON); err != nil || string(same) != string(again) {
			t.Errorf("%s as JSON: %s, want %s", name, same, again)
		}
		var normal any
		harness.Must(t, json.Unmarshal(through, &normal))
		if same, err := json.Marshal(normal); err != nil || string(same) != string(again) {
			t.Errorf("%s as YAML: %s, want %s", name, same, again)
		}
	}
}

// User data is any JSON.
func TestUserDataAsYAML(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		`"\ud83d\ude00"`:           "\"\\U0001F600\"\n",
		`"true"`:                   "\"true\"\n",
		`"1795283222123457"`:       "\"1795283222123457\"\n",
		`1795283222123457`:         "1795283222123457\n",
		`1e400`:                    "1e400\n",
		`null`:                     "null\n",
		`{"z": 1, "a": [], "":{}}`: "z: 1\na: []\n\"\": {}\n",
		`"a\nb\u001b\u202e"`:       `"a\nb\e\U0000202e"` + "\n",
		`"😀"`:                      "\"\\U0001F600\"\n",
	} {
		got, err := show.YAML(json.RawMessage(data))
		if err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", data, got, err, want)
		}
		var back any
		if err := yaml.Unmarshal([]byte(got), &back); err != nil {
			t.Errorf("%s: %q: %v", data, got, err)
		}
	}
	long := `{"` + strings.Repeat("k", 5000) + `": 1}`
	if got, err := show.YAML(json.RawMessage(long)); err != nil || yaml.Unmarshal([]byte(got), new(any)) != nil {
		t.Errorf("a long key: %v", err)
	}
}

func TestEscapeJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"\U000E0001", "\u009b", "\u007f", "\u2028", "\U0001F600", "<&>"} {
		got, err := show.JSON(text)
		var back string
		if err != nil || json.Unmarshal([]byte(got), &back) != nil || back != text || !printable.Is(strings.TrimSpace(got)) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func TestBrief(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		d        time.Duration
		one, two string
	}{
		{0, "0s", "0s"},
		{999 * time.Millisecond, "0s", "0s"},
		{59 * time.Second, "59s", "59s"},
		{61 * time.Second, "1m", "1m1s"},
		{time.Hour + time.Second, "1h", "1h"},
		{26*time.Hour + 59*time.Minute, "1d", "1d2h"},
		{100 * 365 * 24 * time.Hour, "36500d", "36500d"},
	} {
		if one, two := printable.Duration(test.d, 1), printable.Duration(test.d, 2); one != test.one || two != test.two {
			t.Errorf("%v: %s and %s, want %s and %s", test.d, one, two, test.one, test.two)
		}
	}
	for s, want := range map[float64]time.Duration{-1: 0, 1.5: 1500 * time.Millisecond, 1e30: 1<<63 - 1} {
		if got := jsonview.Seconds(s).Duration(); got > want || want < 1<<62 && got != want {
			t.Errorf("%v: %v, want %v", s, got, want)
		}
	}
}

// How long ago something was is by the server's clock where the server says so.
func TestAgo(t *testing.T) {
	t.Parallel()
	l := show.Look{Terminal: true, Now: noon.Add(-time.Hour)} // our clock is late
	if got := l.Ago(viewClaim(claimForTest("a", "me", alone, 3*time.Minute, isWaiting, isActive)).since()); got != "3m ago" {
		t.Error(got)
	}
	if got := l.Ago(show.Moment{At: noon}); got != "0s ago" {
		t.Error(got)
	}
}

// TestHiddenClaim: of a claim that the caller may end, and not read, nothing is shown that the server has not told.
func TestHiddenClaim(t *testing.T) {
	c := &models.Claim{Id: "a", Status: isRevoked}
	for name, want := range map[string]string{
		"json": `{"id":"a","status":"revoked"}`, "name": "a", "wide": "STATUS ID revoked a", "": "STATUS ID revoked a",
	} {
		format := show.Format{Name: name}
		for of, v := range map[string]show.View{"change": changedClaim(c), "end": silent{changedClaim(c)}} {
			want := want
			if name == "" && of == "end" {
				want = ""
			}
			text, err := show.Render(v, format, show.Look{Width: 80})
			harness.Must(t, err)
			if name == "json" {
				text = strings.Join(strings.Fields(text), "")
			}
			if got := strings.Join(strings.Fields(text), " "); got != want {
				t.Errorf("%s, %q: %q, want %q", of, name, got, want)
			}
		}
	}
}

// A holder without an owner is named by its session or its id.
func TestHolderWithoutOwner(t *testing.T) {
	t.Parallel()
	for want, holder := range map[string]*models.Claim{
		"r is held by claim c": {Id: "c"}, "r is held by session s": {Id: "c", Session: "s"}, "r is held by me": {Id: "c", Session: "s", Owner: "me"},
	} {
		if got := viewQueue(&models.Queue{Resource: "r", Holders: []*models.Claim{holder}}).summary(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
