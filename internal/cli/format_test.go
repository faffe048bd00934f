package cli

import (
	"strings"
	"testing"

	"github.com/locket-service/locket/internal/cli/exit"
	"github.com/locket-service/locket/internal/cli/printable"
	"github.com/locket-service/locket/models/jsonview"
)

// What a path and a template find is what -o json shows.
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
		if got, err := render(viewsForTest()[test.view], formatForTest(t, test.format), look{}); got != test.want || err != nil {
			t.Errorf("%s -o %s: %q, %v, want %q", test.view, test.format, got, err, test.want)
		}
	}
	if _, err := render(viewsForTest()["queue"], formatForTest(t, "jsonpath=$..*[0:2:-1]"), look{}); err == nil || !strings.Contains(err.Error(), "cannot be followed") {
		t.Error(err)
	}
	if _, err := render(viewsForTest()["claim"], formatForTest(t, "template={{.ownr}}"), look{}); err == nil || !strings.Contains(err.Error(), "ownr") {
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
		table := newTable(fixed("ID"), long("RESOURCE"), long("OWNER"), since, onlyWide("TOKEN"))
		table.add(plain("0123456789"), plain(name+"1"), plain("三国志"), plain("3m ago"), plain("1795283222123457"))
		table.add(plain("abc"), plain(name+"2"), plain(name), plain("1s ago"), plain(""))
		text := table.text(look{width: width})
		if lines := strings.Split(text, "\n"); len(lines) != 4 || strings.Contains(text, "TOKEN") || !strings.Contains(text, "0123456789  a/l") || !strings.Contains(text, "3m ago") ||
			(strings.Contains(text, "ame/1") && strings.Contains(text, "ame/2")) != (width >= 60) {
			t.Errorf("%d:\n%s", width, text)
		}
		for line := range strings.Lines(text) {
			if n := printable.Columns(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("%d of %d columns: %s", n, width, line)
			}
		}
		if text := table.text(look{wide: true, width: 0}); !strings.Contains(text, name+"1") || !strings.Contains(text, "TOKEN") {
			t.Errorf("wide:\n%s", text)
		}
	}
}

// Lines that come one after the other fit as well, and with -o wide nothing is left out.
func TestLinesFit(t *testing.T) {
	t.Parallel()
	name, before, token := strings.Repeat("a/long/name/", 20), jsonview.Status(isWaiting), uint64(1795283222123457)
	watched := &jsonview.Watched{Resource: name + "1", Owner: &name, Status: jsonview.Status(isRevoked), Token: &token, Reason: &name}
	for _, line := range []view{watchEvent{Claim: watched, Before: &before}, observedLeader{&name, &token, &name}} {
		for _, width := range []int{80, 120} {
			text, err := render(line, formatForTest(t, ""), look{width: width, now: noon})
			if n := printable.Columns(strings.TrimSuffix(text, "\n")); err != nil || n > width || n < width-20 {
				t.Errorf("%d of %d columns, %v: %s", n, width, err, text)
			}
		}
		text, err := render(line, formatForTest(t, "wide"), look{width: 80, now: noon})
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
		format, err := parseFormat(text)
		if err != nil {
			return
		}
		for _, v := range views {
			if text, err := render(v, format, look{}); err == nil && format.name == "jsonpath" && !printable.Is(strings.ReplaceAll(text, "\n", "")) {
				t.Errorf("%q", text)
			}
		}
	})
}
