package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
	"github.com/locket-service/locket/tests/harness"
)

func secondsForTest(n float64) *jsonview.Seconds { return new(jsonview.Seconds(n)) }

// explainersForTest are queues that are hard to explain.
func explainersForTest() map[string]explainer {
	held := func(change ...func(*models.Claim)) *models.Claim {
		c := claimForTest("a", "me", alone, 3*time.Minute, isWaiting, isActive)
		for _, do := range change {
			do(c)
		}
		return c
	}
	of := func(session string) func(*models.Claim) {
		return func(c *models.Claim) { c.Session, c.Ttl = session, nil }
	}
	queue := func(holders ...*models.Claim) *models.Queue {
		return &models.Queue{Resource: "backup", Version: 9, Holders: holders}
	}
	patient := claimForTest("c", "she", alone, 50*time.Second, isWaiting)
	patient.WaitTtl = proto.Float64(60)
	line := queue(held())
	line.Waiters, line.Waiting = []*models.Claim{patient, claimForTest("d", "", alone, 40*time.Second, isWaiting)}, 10_000
	circle := queue(held())
	elsewhere, back := claimForTest("e", "me", alone, time.Minute, isWaiting), claimForTest("f", "you", alone, time.Minute, isWaiting)
	elsewhere.Resource = "other"
	circle.Waiters, circle.Waiting = []*models.Claim{back}, 1
	circle.Waits = []*models.Wait{
		{Waiter: elsewhere, Holders: []*models.Claim{claimForTest("g", "you", alone, time.Hour, isWaiting, isActive)}},
		{Waiter: back, Holders: []*models.Claim{held()}},
	}
	many := queue()
	for i := range 12 {
		many.Holders = append(many.Holders, claimForTest(fmt.Sprint("s", i), fmt.Sprint("reader-", i), together, time.Minute, isWaiting, isActive))
	}
	hostile := held(func(c *models.Claim) {
		c.Owner, c.Identity = "o\n\x1b[2J", "cert:\x1b[31m"
	}, of("s\r\x1b[1m"))
	named := queue(hostile)
	named.Resource = "k\n\x1b[2J"
	ended := claimForTest("z", "me", alone, time.Hour, isWaiting, isActive, isRevoked)
	ended.Reason = "it was\nstuck\x1b[2J"
	return map[string]explainer{
		"never used":           {queue: &models.Queue{Resource: "backup"}},
		"free":                 {queue: queue(), last: ended},
		"free, by rules":       {queue: queue()},
		"lease":                {queue: queue(held())},
		"due":                  {queue: queue(held(func(c *models.Claim) { c.Ttl = proto.Float64(0) }))},
		"shared by one":        {queue: queue(claimForTest("a", "me", together, time.Minute, isWaiting, isActive))},
		"shared by many":       {queue: many},
		"session":              {queue: queue(held(of("s1"))), sessions: []jsonview.Session{{ID: "s1", Server: new("node-1"), TTL: 10}}},
		"session without host": {queue: queue(held(of("s1"))), sessions: []jsonview.Session{{ID: "s1", TTL: 10}}},
		"detached session":     {queue: queue(held(of("s1"))), sessions: []jsonview.Session{{ID: "s1", TTL: 10, EndsIn: secondsForTest(7)}}},
		"ending session":       {queue: queue(held(of("s1"))), sessions: []jsonview.Session{{ID: "s1", TTL: 10, EndsIn: secondsForTest(0)}}},
		"unknown session":      {queue: queue(held(of("s1")))},
		"line":                 {queue: line},
		"deadlock":             {queue: circle},
		"hostile":              {queue: named},
	}
}

// The exact text for each queue; and no text of a client reaches a terminal unescaped.
func TestExplanations(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	all := explainersForTest()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		e := all[name]
		e.now = noon
		v := e.explanation()
		fmt.Fprintf(&log, "--- %s\n%s", name, v.Text(show.Look{}))
		if v.Deadlock != (name == "deadlock") {
			t.Errorf("%s: deadlock: %v", name, v.Deadlock)
		}
		for _, format := range []string{"", "json", "yaml", "name", "wide"} {
			text, err := show.Render(v, formatForTest(t, format), show.Look{Terminal: true, Now: noon})
			harness.Must(t, err)
			if !printable.Is(strings.ReplaceAll(text, "\n", "")) || format == "" && strings.Count(text, "\n") != len(v.Explanation) {
				t.Errorf("%s as %q: %q", name, format, text)
			}
		}
	}
	golden(t, "explain", log.String())
}

// A real server's answers contain everything that explain needs.
func TestExplain(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	says := func(name string, want ...string) {
		t.Helper()
		for _, words := range want {
			c.says(words, "explain", name)
		}
	}
	says("never", "never is free: nobody holds it, and nothing is known of an earlier use.", "The next claim will hold it.")
	c.run("lock", "used", "--owner", "me", "--ttl", "1h")
	c.run("release", "used", "--owner", "me")
	says("used", "used is free: nobody holds it. The last claim of it was ", ", of me, which was released ")
	c.run("claim", "backup", "--owner", "me", "--id", "a", "--ttl", "5m")
	c.queue("claim", "backup", "--owner", "you", "--id", "b", "--wait-ttl", "1m")
	c.queue("claim", "backup", "--owner", "her", "--id", "c", "--shared")
	says("backup", "backup is held by me since ", ", by the claim a with token ", "It ends at ", " at the latest, in 4m", "you is next, and waits since ", "by the claim b, behind me; it leaves the queue if nobody asks about it for 1m.",
		"her waits since ", "by the claim c, behind you at place 1.", "locket release --id a", "Then the next claim holds it.")
	for _, id := range []string{"r1", "r2"} {
		c.run("claim", "shared", "--owner", id, "--id", id, "--shared")
	}
	says("shared", "shared is shared by 2 claims.", "r1 holds it since ", "r2 holds it since ")
	c.run("claim", "other", "--owner", "you", "--id", "d", "--ttl", "5m")
	says("backup", "backup is held by me")
	c.queue("claim", "other", "--owner", "me", "--id", "e", "--allow-deadlock")
	says("backup", "me waits for other since ", ": held by you.", "This is a deadlock")
	says("other", "This is a deadlock")
	var v struct {
		Explanation []string
		Deadlock    bool
		Queue       struct{ Holders, Waiters []struct{ ID string } }
		Sessions    []struct{ ID string }
	}
	harness.Must(t, json.Unmarshal([]byte(c.run("explain", "backup", "-o", "json")), &v))
	if !v.Deadlock || len(v.Explanation) < 5 || v.Queue.Holders[0].ID != "a" || len(v.Queue.Waiters) != 2 || v.Sessions == nil {
		t.Errorf("%+v", v)
	}
	s := harness.DialSession(t, harness.ClientAt(t, c.address))
	s.Open("s")
	s.KeepAlive()
	s.Lock("bound\n", harness.Held)
	says("bound\n", `"bound\n" is held by s since `, "It ends with the session "+s.ID+", which is attached to ", ", and lives until 10s after its client was last heard from.")
	s.BreakOff()
	harness.Eventually(t, func() error {
		if text := c.run("explain", "bound\n"); !strings.Contains(text, "whose client is gone: in ") {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
	if _, stderr, status := c.try("explain", strings.Repeat("n", 1025)); status != exit.Failure && status != exit.Usage || !strings.Contains(stderr, "1024") && !strings.Contains(stderr, "1,024") {
		t.Errorf("%d %s", status, stderr)
	}
}
