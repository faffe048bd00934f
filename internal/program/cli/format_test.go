package cli

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

// Paths and templates see the same members as -o json.
func TestPathsAndTemplates(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ view, format, want string }{
		{"claim", "jsonpath=$.id", "a\n"},
		{"claim", "jsonpath={.id}", "a\n"},
		{"claim", "jsonpath=.token", "1795283222123457\n"},
		{"claim", "jsonpath=$['user_data'].host", "a7\n"},
		{"claim", "jsonpath=$.session", "null\n"},
		{"claim", "jsonpath=$.status_history[*].status", "waiting\nactive\n"},
		{"claim", "jsonpath=$.user_data", "{\"host\":\"a7\"}\n"},
		{"claim", "jsonpath=$.nothing", ""},
		{"queue", "jsonpath=$.waiters[?(@.mode=='shared')].owner", "she\nhe\n"},
		{"queue", "jsonpath=$.waiters[?@.waiting_duration > 55].owner", "三国志\n"},
		{"queue", "jsonpath=$.holders[?(@.token >= 1795283222123457)].id", "a\nb\n"},
		{"claims", "jsonpath={[7].owner}", `\x1b]0;title\a\x1b[2J` + "\n"},
		{"claims", "jsonpath=$[0].id", "id\n"},
		{"claim", "template={{.id}} {{.token}}\n", "a 1795283222123457\n"},
		{"claim", `template={{range .status_history}}{{.status}},{{end}}`, "waiting,active,"},
		{"queue", `template={{range .waiters}}{{or .owner "-"}}{{"\t"}}{{.mode}}{{"\n"}}{{end}}`, "三国志\texclusive\nshe\tshared\nhe\tshared\nx\texclusive\n"},
		{"lock", "template={{.key}}", `k\x1b[31m`},
	} {
		if got, err := show.Render(viewsForTest()[test.view], formatForTest(t, test.format), show.Look{}); got != test.want || err != nil {
			t.Errorf("%s -o %s: %q, %v, want %q", test.view, test.format, got, err, test.want)
		}
	}
	if _, err := show.Render(viewsForTest()["queue"], formatForTest(t, "jsonpath=$..*[0:2:-1]"), show.Look{}); err == nil || !strings.Contains(err.Error(), "cannot be followed") {
		t.Error(err)
	}
	if _, err := show.Render(viewsForTest()["claim"], formatForTest(t, "template={{.ownr}}"), show.Look{}); err == nil || !strings.Contains(err.Error(), "ownr") {
		t.Error(err)
	}
}

// A format that is wrong is said before anything is done.
func TestWrongFormats(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"xml", "json=", "wide=1", "jsonpath", "jsonpath=", "jsonpath=$[", "jsonpath=id", "jsonpath={range .[*]}", "template", "template=", "template={{", "template={{nosuch}}", "=", "JSON"} {
		complains(t, exit.Usage, []string{"lock", "k", "--owner", "me", "-o", format}, "--output")
	}
}

// Tables fit the width; ids, times and numbers are whole.
func TestTablesFit(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("a/long/name/", 20)
	for _, width := range []int{40, 60, 80, 120, 1000} {
		table := show.NewTable(show.Fixed("ID"), show.Long("RESOURCE"), show.Long("OWNER"), show.Since, show.OnlyWide("TOKEN"))
		table.Add(show.Plain("0123456789"), show.Plain(name+"1"), show.Plain("三国志"), show.Plain("3m ago"), show.Plain("1795283222123457"))
		table.Add(show.Plain("abc"), show.Plain(name+"2"), show.Plain(name), show.Plain("1s ago"), show.Plain(""))
		text := table.Text(show.Look{Width: width})
		if lines := strings.Split(text, "\n"); len(lines) != 4 || strings.Contains(text, "TOKEN") || !strings.Contains(text, "0123456789  a/l") || !strings.Contains(text, "3m ago") ||
			(strings.Contains(text, "ame/1") && strings.Contains(text, "ame/2")) != (width >= 60) {
			t.Errorf("%d:\n%s", width, text)
		}
		for line := range strings.Lines(text) {
			if n := printable.Columns(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("%d of %d columns: %s", n, width, line)
			}
		}
		if text := table.Text(show.Look{Wide: true, Width: 0}); !strings.Contains(text, name+"1") || !strings.Contains(text, "TOKEN") {
			t.Errorf("wide:\n%s", text)
		}
	}
}

// Every answer that is a table fits a terminal of 60 columns; a pipe gets it whole, and one long name widens only its own row.
func TestAnswersFit(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("a/long/name/", 20)
	long := claimForTest("06h23ggp8dt858lj93qnuones8", name+"owner", alone, 3*time.Minute, isWaiting, isActive)
	long.Resource, long.Value = name+"resource", name+"value"
	short := claimForTest("06h23gh08dt858lj93qnuones8", "me", alone, 3*time.Minute, isWaiting)
	queue := &models.Queue{Resource: long.GetResource(), Holders: []*models.Claim{long}, Waiters: []*models.Claim{short}, Waiting: 1}
	views := map[string]show.View{
		"claims": claimList{viewClaim(long), viewClaim(short)}, "row": claimRow{viewClaim(long)}, "queue": viewQueue(queue),
		"locks": lockList{lockOf(viewClaim(long))}, "lock": heldView{jsonview.OfLock(&models.Resource{Key: name, Owner: name, Value: name}), 1795283222123457},
		"resources": resourceList{jsonview.OfResource(&models.ResourceInfo{Resource: name, Holder: long, Holding: 2, Waiting: 4, OldestWait: proto.Float64(3599)}, jsonview.OfPlace)},
		"sessions":  sessionList{jsonview.OfSession(&models.SessionInfo{Id: "224b4fe7-6bd0-443d-8201-aab64407a4cc", Owner: name, Server: name, Ttl: 60})},
	}
	for what, v := range views {
		text, err := show.Render(v, formatForTest(t, "table"), show.Look{Terminal: true, Width: 60, Now: noon})
		_, rows, _ := strings.Cut(text, map[bool]string{true: "\n"}[what == "queue"]) // after its summary
		for line := range strings.Lines(rows) {
			if n := printable.Columns(strings.TrimSuffix(line, "\n")); err != nil || n > 60 {
				t.Errorf("%s: %v, %d columns: %s", what, err, n, line)
			}
		}
		if hasID := what != "locks" && what != "lock" && what != "resources"; hasID != (strings.Contains(text, "06h23ggp8d") || strings.Contains(text, " 224b4fe7\n")) || strings.Contains(text, "nuones8") {
			t.Errorf("%s has a short id: %s", what, text)
		}
		text, err = show.Render(v, formatForTest(t, "table"), show.Look{Now: noon})
		if err != nil || !strings.Contains(text, name) || strings.Contains(text, "…") || strings.Contains(text, strings.Repeat(" ", 60)) {
			t.Errorf("%s, piped: %v\n%s", what, err, text)
		}
	}
}

// A pipe gets long owners whole, so that grep finds them. $COLUMNS cuts the table in a pipe as well.
func TestPipe(t *testing.T) {
	c := newCLI(t)
	owner := strings.Repeat("a-long-owner-", 20) + "end"
	c.run("claim", "k", "--owner", owner)
	if text := c.run("claims"); !strings.Contains(text, owner) {
		t.Error(text)
	}
	t.Setenv("COLUMNS", "60")
	for line := range strings.Lines(c.run("claims")) {
		if n := printable.Columns(strings.TrimSuffix(line, "\n")); n > 60 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// Lines that come one after the other fit as well, and with -o wide nothing is left out.
func TestLinesFit(t *testing.T) {
	t.Parallel()
	name, before, token := strings.Repeat("a/long/name/", 20), jsonview.Status(isWaiting), uint64(1795283222123457)
	watched := &jsonview.Watched{Resource: name + "1", Owner: &name, Status: jsonview.Status(isRevoked), Token: &token, Reason: &name}
	for _, line := range []show.View{watchEvent{Claim: watched, Before: &before}, observedLeader{&name, &token, &name}} {
		for _, width := range []int{80, 120} {
			text, err := show.Render(line, formatForTest(t, ""), show.Look{Width: width, Now: noon})
			if n := printable.Columns(strings.TrimSuffix(text, "\n")); err != nil || n > width || n < width-20 {
				t.Errorf("%d of %d columns, %v: %s", n, width, err, text)
			}
		}
		text, err := show.Render(line, formatForTest(t, "wide"), show.Look{Width: 80, Now: noon})
		if err != nil || strings.Contains(text, "…") || !strings.Contains(text, name) || !strings.Contains(text, "1795283222123457") {
			t.Errorf("wide: %v %s", err, text)
		}
	}
}

// No path and no template ends the program otherwise than with an error.
func FuzzFormats(f *testing.F) {
	for _, seed := range []string{"jsonpath=$[*].id", "jsonpath={.waiters[?(@.mode=='shared')].owner}", "jsonpath=$..*[0:2:-1]", "jsonpath=$[?length(@.id) > 1]", "template={{range .}}{{.id}}{{end}}", "template={{index . 1}}"} {
		f.Add(seed)
	}
	views := viewsForTest()
	f.Fuzz(func(t *testing.T, text string) {
		format, err := show.ParseFormat(text)
		if err != nil {
			return
		}
		for _, v := range views {
			if text, err := show.Render(v, format, show.Look{}); err == nil && format.Name == "jsonpath" && !printable.Is(strings.ReplaceAll(text, "\n", "")) {
				t.Errorf("%q", text)
			}
		}
	})
}
