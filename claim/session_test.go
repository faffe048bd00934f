package claim_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/claim"
)

const sessionTTL = 10 * time.Second

func attach(id, server string) claim.Attach {
	return claim.Attach{Session: claim.Session{ID: id, Owner: "of " + id, Secret: []byte("secret"), TTL: sessionTTL}, Server: server}
}

func bound(id, resource, session string) claim.Create {
	return claim.Create{ID: id, Resource: resource, Owner: "of " + session, Session: session, Server: "here", TTL: time.Second}
}

func ending(id string) claim.EndSession {
	return claim.EndSession{ID: id, Active: claim.Expired, Waiting: claim.Aborted, Reason: "over"}
}

func mustRefuse(t testing.TB, queues *claim.Queues, want error, cmd claim.Command) {
	t.Helper()
	if _, err := queues.Do(cmd); !errors.Is(err, want) {
		t.Errorf("%T%+v: error %v, want %v", cmd, cmd, err, want)
	}
}

func pass(queues *claim.Queues, d time.Duration) {
	queues.Now.Wall, queues.Now.Lease = queues.Now.Wall.Add(d), queues.Now.Lease.Add(d)
}

// The claims of a session have no deadline, whether they are granted at once or later.
func TestSessionClaimsHaveNoDeadline(t *testing.T) {
	queues := threePrinters()
	must(t, queues, create("first", "one"), attach("s", "here"), bound("a", "one", "s"), bound("b", "two", "s"), claim.End{ID: "first"})
	pass(queues, 100*365*24*time.Hour)
	must(t, queues, create("next", "one"), claim.Expire{Resources: []string{"one", "two"}})
	for resource, id := range map[string]string{"one": "a", "two": "b"} {
		c := queues.Resource(resource).Find(id)
		equal(t, "status", c.Status, claim.Active)
		equal(t, "deadline", c.Deadline, claim.Forever)
		equal(t, "due", c.Due(queues.Now), false)
		equal(t, "time left", c.Remaining(queues.Now), math.MaxInt64)
	}
	for _, by := range []time.Duration{0, time.Hour, math.MaxInt64} {
		equal(t, "later than for ever", claim.Forever.Add(by), claim.Forever)
	}
}

// A TTL does not make a lease of what a session holds, and its owner is another party.
func TestSessionClaimIsNoLease(t *testing.T) {
	queues := threePrinters()
	must(t, queues, attach("s", "here"), bound("a", "one", "s"))
	ttl := time.Second
	mustRefuse(t, queues, claim.ErrSessionClaim, claim.Renew{ID: "a", TTL: ttl})
	mustRefuse(t, queues, claim.ErrSessionClaim, claim.Activate{ID: "a", TTL: &ttl})
	must(t, queues, claim.Activate{ID: "a"})
	token := queues.Resource("one").Find("a").Token
	for _, cmd := range []claim.Command{
		claim.Acquire{ID: "l", Resource: "one", Owner: "of s", TTL: ttl},
		claim.Acquire{ID: "l", Resource: "one", Owner: "of s", TTL: ttl, Token: token},
		claim.Release{Resource: "one", Owner: "of s"},
	} {
		var collision *claim.CollisionError
		if _, err := queues.Do(cmd); !errors.As(err, &collision) || collision.Holder.ID != "a" {
			t.Errorf("%T: %v", cmd, err)
		}
	}
	equal(t, "deadline", queues.Resource("one").Find("a").Deadline, claim.Forever)
}

// A claim is made for a session only by the server that it is attached to.
func TestSessionMustBeAttached(t *testing.T) {
	queues := threePrinters()
	mustRefuse(t, queues, claim.ErrSessionEnded, bound("a", "one", "s"))
	must(t, queues, attach("s", "there"))
	mustRefuse(t, queues, claim.ErrNotAttached, bound("a", "one", "s"))
	must(t, queues, attach("s", "here"), bound("a", "one", "s"), bound("a", "one", "s"))
	other := bound("a", "one", "other")
	must(t, queues, attach("other", "here"))
	mustRefuse(t, queues, claim.ErrIDTaken, other)
	must(t, queues, claim.Detach{ID: "s", Server: "here", Left: time.Second})
	mustRefuse(t, queues, claim.ErrNotAttached, bound("b", "two", "s"))
	nowhere := bound("b", "two", "s")
	nowhere.Server = ""
	mustRefuse(t, queues, claim.ErrNotAttached, nowhere)
	must(t, queues, ending("s"))
	mustRefuse(t, queues, claim.ErrSessionEnded, bound("a", "one", "s"))
	equal(t, "claims of two", queues.Resource("two").Changed(), false)
}

// A detached session falls due, and is as good as ended then; until then it may be resumed.
func TestSessionDue(t *testing.T) {
	queues := threePrinters()
	queues.Now.Skew = time.Second
	resume := attach("s", "there")
	resume.Resume = true
	mustRefuse(t, queues, claim.ErrSessionEnded, resume)
	must(t, queues, attach("s", "here"), claim.Detach{ID: "s", Server: "there"})
	equal(t, "server", queues.Session("s").Server, "here")
	guess := resume
	guess.Session.Secret = []byte("guess")
	mustRefuse(t, queues, claim.ErrSessionSecret, guess)
	for left, want := range map[time.Duration]time.Duration{-time.Hour: 0, time.Hour: sessionTTL, time.Second: time.Second} {
		must(t, queues, attach("s", "here"), claim.Detach{ID: "s", Server: "here", Left: left})
		equal(t, "deadline", queues.Session("s").Deadline, queues.Now.Lease.Add(want))
		if want == 0 {
			mustRefuse(t, queues, nil, attach("s", "here"))
		}
	}
	must(t, queues, attach("s", "here"), claim.Detach{ID: "s", Server: "here", Left: 3 * time.Second})
	due := ending("s")
	due.OnlyDue = true
	pass(queues, 4*time.Second-time.Microsecond)
	must(t, queues, due, resume, claim.Detach{ID: "s", Server: "there", Left: 3 * time.Second})
	equal(t, "the session before it is due", queues.Session("s").ID, "s")
	pass(queues, 4*time.Second)
	mustRefuse(t, queues, claim.ErrSessionEnded, resume)
	mustRefuse(t, queues, claim.ErrSessionEnded, attach("s", "here"))
	must(t, queues, due, due)
	if s := queues.Session("s"); s != nil {
		t.Errorf("still there: %+v", s)
	}
	mustRefuse(t, queues, claim.ErrSessionEnded, attach("s", "here"))
}

// The claims of a session that a transaction has read end with it, and who comes next is granted.
func TestSessionEnds(t *testing.T) {
	queues := threePrinters()
	queues.PutSession(claim.Session{ID: "s", Server: "here", Secret: []byte("secret"), TTL: sessionTTL}, "holds", "waits", "ended", "nowhere")
	held := claim.Claim{ID: "holds", Resource: "one", Session: "s", Status: claim.Active, Deadline: claim.Forever, Token: 7, Version: 7, Enqueued: 6}
	one := claim.NewQueue(claim.Row{Resource: "one", Version: 9, Holder: "holds"}, 0, nil)
	queues.Put(one)
	queues.Add(&held)
	queues.Add(&claim.Claim{ID: "ended", Resource: "one", Session: "s", Status: claim.Released})
	must(t, queues, bound("joins", "one", "s"), create("next", "one"), create("first", "two"), bound("w", "two", "s"))
	mustRefuse(t, queues, claim.ErrNotAttached, claim.EndSession{ID: "s", Server: "there"})
	must(t, queues, claim.EndSession{ID: "s", Server: "here", Active: claim.Released, Waiting: claim.Withdrawn, Reason: "closed"}, ending("s"), ending("none"))
	for id, want := range map[string]claim.Status{"holds": claim.Released, "joins": claim.Withdrawn, "next": claim.Active, "ended": claim.Released} {
		equal(t, "status of "+id, one.Find(id).Status, want)
	}
	equal(t, "status of w", queues.Resource("two").Find("w").Status, claim.Withdrawn)
	equal(t, "reason", one.Find("holds").Reason, "closed")
	changes := queues.ChangedSessions()
	if len(changes) != 1 || changes[0].After != nil || changes[0].ID() != "s" {
		t.Errorf("changes: %+v", changes)
	}
}

// What could not be loaded of a session refuses its commands alone.
func TestSessionRefused(t *testing.T) {
	locked := errors.New("locked")
	queues := threePrinters()
	queues.RefuseSession(locked, "s")
	for _, cmd := range []claim.Command{attach("s", "here"), bound("a", "one", "s"), claim.Detach{ID: "s", Server: "here"}, ending("s")} {
		mustRefuse(t, queues, locked, cmd)
	}
	queues.PutSession(claim.Session{ID: "half", Server: "here"}, "a", "b")
	queues.Refuse(locked, "four", "b")
	mustRefuse(t, queues, locked, ending("half"))
	must(t, queues, bound("c", "two", "half"), attach("other", "here"), ending("other"))
	equal(t, "status of the claim of a session that could not be ended", queues.Resource("two").Find("c").Status, claim.Active)
}

// Random commands: a session's live claims are always those of a session that is there, none of them
// falls due, and each queue's next one is granted.
func TestPropertySessions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		queues := threePrinters()
		made := 0
		pick := func(what string, from ...string) string { return rapid.SampledFrom(from).Draw(t, what) }
		session := func() string { return pick("session", "s1", "s2", "s3") }
		server := func() string { return pick("server", "here", "there") }
		resource := func() string { return pick("resource", "one", "two", "three") }
		do := func(cmd claim.Command) { _, _ = queues.Do(cmd) }
		anyID := func() string { return fmt.Sprint("claim ", rapid.IntRange(0, made).Draw(t, "claim")) }
		t.Repeat(map[string]func(*rapid.T){
			"attach": func(*rapid.T) {
				cmd := attach(session(), server())
				cmd.Resume = rapid.Bool().Draw(t, "resume")
				do(cmd)
			},
			"detach": func(*rapid.T) {
				do(claim.Detach{ID: session(), Server: server(), Left: time.Duration(rapid.IntRange(0, 20).Draw(t, "left")) * time.Second})
			},
			"end": func(*rapid.T) {
				cmd := ending(session())
				cmd.OnlyDue = rapid.Bool().Draw(t, "only due")
				do(cmd)
			},
			"bound": func(*rapid.T) {
				made++
				cmd := bound(fmt.Sprint("claim ", made), resource(), session())
				cmd.Mode = rapid.SampledFrom([]claim.Mode{claim.Exclusive, claim.Shared}).Draw(t, "mode")
				do(cmd)
			},
			"create":  func(*rapid.T) { made++; do(create(fmt.Sprint("claim ", made), resource())) },
			"give up": func(*rapid.T) { do(claim.End{ID: anyID()}) },
			"renew":   func(*rapid.T) { do(claim.Renew{ID: anyID(), TTL: time.Second}) },
			"expire":  func(*rapid.T) { do(claim.Expire{Resources: []string{resource()}}) },
			"pass": func(*rapid.T) {
				pass(queues, time.Duration(rapid.IntRange(0, 100).Draw(t, "seconds"))*time.Second)
			},
			"": func(t *rapid.T) { checkSessions(t, queues) },
		})
	})
}

func checkSessions(t *rapid.T, queues *claim.Queues) {
	t.Helper()
	byResource := map[string][]entry{}
	for _, change := range queues.Changes() {
		c := change.After
		byResource[c.Resource] = append(byResource[c.Resource], record(*c))
		if c.Session == "" || !c.Status.Live() {
			continue
		}
		if queues.Session(c.Session) == nil {
			t.Fatalf("its session has ended: %+v", c)
		}
		if c.Status == claim.Active && c.Deadline != claim.Forever {
			t.Fatalf("the claim of a session falls due: %+v", c)
		}
	}
	for resource, claims := range byResource {
		slices.SortFunc(claims, func(a, b entry) int { return int(a.Enqueued) - int(b.Enqueued) })
		row := queues.Resource(resource).Row
		want := recount(row.Version, claims)
		want.Resource = resource
		if row != want {
			t.Fatalf("the row says %+v, a recount %+v", row, want)
		}
		checkHolders(t, claims)
		checkNoneLeftBehind(t, claims)
	}
}
