package claim_test

import (
	"errors"
	"testing"
	"time"

	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
)

// callerOf returns a caller that has rights on all resources.
func callerOf(identity string, rights access.Right) access.Caller {
	all, rules := "", []*access.Rule(nil)
	if rights != 0 {
		rules = []*access.Rule{{Everybody: true, May: rights, ResourcePrefix: &all}}
	}
	return access.Caller{Identity: access.Identity{Name: identity}, Rules: access.NewRules(rules)}
}

// as carries out a command for an identity that may hold all resources, and has some more rights.
func (d *queueTest) as(identity string, cmd claim.Command, more access.Right) (claim.Claim, error) {
	d.queues.Now = d.now
	c, err := d.queues.DoFor(callerOf(identity, access.Hold|more), cmd)
	if c == nil {
		return claim.Claim{}, err
	}
	return *c, err
}

// denied reports whether an error is about a missing right.
func denied(err error) bool {
	var e *access.DeniedError
	return errors.As(err, &e)
}

// collides reports whether an error says that others hold the resource.
func collides(err error) bool {
	var e *claim.CollisionError
	return errors.As(err, &e)
}

// TestPermit: a caller without rights cannot distinguish a refused claim from a missing one.
func TestPermit(t *testing.T) {
	const ok, hidden, refused = "ok", "hidden", "denied"
	for _, c := range []struct {
		caller, owner   string
		rights          access.Right
		see, renew, end string
	}{
		{"stranger", "owner", 0, hidden, hidden, hidden},
		{"reader", "owner", access.Read, ok, refused, refused},
		{"holder", "owner", access.Hold, hidden, hidden, hidden},
		{"revoker", "owner", access.Revoke, hidden, hidden, ok},
		{"admin", "owner", access.Administer, hidden, ok, hidden},
		{"owner", "owner", 0, ok, refused, ok},
		{"owner", "owner", access.Hold, ok, ok, ok},
		{"stranger", "", 0, hidden, hidden, hidden},
		{"reader", "", access.Read, ok, refused, refused},
		{"holder", "", access.Hold, hidden, ok, ok},
		{"", "", 0, hidden, hidden, hidden},
		{"", "owner", 0, hidden, hidden, hidden},
	} {
		for name, action := range map[string]struct {
			cmd  claim.Command
			want string
		}{
			"see":   {claim.Activate{ID: "a"}, c.see},
			"renew": {claim.Renew{ID: "a", TTL: time.Minute}, c.renew},
			"end":   {claim.End{ID: "a"}, c.end},
		} {
			d := setup(t)
			d.queues.Now = d.now
			if _, err := d.queues.DoFor(access.Caller{Identity: access.Identity{Name: c.owner}}, request("a")); err != nil {
				t.Fatal(err)
			}
			got := ok
			switch _, err := d.queues.DoFor(callerOf(c.caller, c.rights), action.cmd); {
			case denied(err):
				got = refused
			case err != nil:
				got = hidden
				if !errors.Is(err, claim.ErrNotFound) {
					t.Error(err)
				}
			}
			if got != action.want {
				t.Errorf("%q with %q, claim of %q, %s: %s, want %s", c.caller, c.rights, c.owner, name, got, action.want)
			}
		}
	}
	made := &claim.Claim{Resource: "r", Identity: "owner"}
	if off := (access.Caller{}); !claim.Sees(off, made) || !claim.SeesUserData(off, made) {
		t.Error("without authentication everything is allowed")
	}
}

func TestIdentities(t *testing.T) {
	ttl := time.Second
	for name, c := range map[string]struct {
		cmd   claim.Command
		needs access.Right
	}{
		"renew":           {claim.Renew{ID: "a", TTL: ttl}, access.Administer},
		"ask":             {claim.Activate{ID: "a"}, access.Read},
		"end":             {claim.End{ID: "a"}, access.Revoke},
		"revoke":          {claim.SetStatus{ID: "a", Status: claim.Revoked}, access.Revoke},
		"release":         {claim.Release{Resource: "printer", Owner: "jim"}, access.Revoke},
		"lock again":      {claim.Acquire{ID: "b", Resource: "printer", Owner: "jim", TTL: ttl}, access.Administer},
		"lock with token": {claim.Acquire{ID: "b", Resource: "printer", Owner: "jim", TTL: ttl, Token: uint64(start) + 1}, access.Administer},
	} {
		t.Run(name, func(t *testing.T) {
			d := setup(t)
			made, err := d.as("alice", claim.Acquire{ID: "a", Resource: "printer", Owner: "jim", TTL: time.Minute}, 0)
			if err != nil || made.Identity != "alice" || made.Token != uint64(start)+1 {
				t.Fatalf("made %+v, %v", made, err)
			}
			if _, err := d.as("mallory", c.cmd, 0); !denied(err) && !errors.Is(err, claim.ErrNotFound) && !collides(err) {
				t.Errorf("another identity: %v", err)
			}
			if got := d.get("a"); got.Version != made.Version {
				t.Errorf("a refusal changed %+v to %+v", made, got)
			}
			after, err := d.as("root", c.cmd, c.needs)
			if err != nil || after.ID != "a" || after.Identity != "alice" {
				t.Errorf("one who may: %+v, %v", after, err)
			}
			if by := after.EndedBy; after.Status.Final() != (by == "root") {
				t.Errorf("status %s, ended by %q", after.Status, by)
			}
		})
	}
}

func TestIdentityOfAnActivation(t *testing.T) {
	d, ttl := setup(t), time.Second
	if _, err := d.as("alice", request("a"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := d.as("mallory", claim.Activate{ID: "a", TTL: &ttl}, access.Read); !denied(err) {
		t.Errorf("who may see it renews it: %v", err)
	}
}

func TestIdentityOfARepeatedRequest(t *testing.T) {
	d := setup(t)
	if _, err := d.as("alice", request("a"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := d.as("mallory", request("a"), access.Read); !errors.Is(err, claim.ErrIDTaken) {
		t.Errorf("another identity takes the claim for its own: %v", err)
	}
	if again, err := d.as("alice", request("a"), 0); err != nil || again.Identity != "alice" {
		t.Errorf("%+v, %v", again, err)
	}
}

func TestLockOfAnotherIdentityIsTakenWhenDue(t *testing.T) {
	d := setup(t)
	lock := claim.Acquire{ID: "a", Resource: "printer", Owner: "jim", TTL: time.Second}
	if _, err := d.as("alice", lock, 0); err != nil {
		t.Fatal(err)
	}
	d.after(time.Second)
	lock.ID = "b"
	taken, err := d.as("bob", lock, 0)
	if err != nil || taken.ID != "b" || taken.Identity != "bob" {
		t.Errorf("%+v, %v", taken, err)
	}
	if was := d.get("a"); was.Status != claim.Expired || was.EndedBy != "" {
		t.Errorf("the one before: %+v", was)
	}
}

// TestNobodyEndsAnAbandonedClaim: an abandoned claim is not recorded as ended by the caller whose release made it
// due.
func TestNobodyEndsAnAbandonedClaim(t *testing.T) {
	d := setup(t)
	if _, err := d.as("alice", claim.Create{ID: "holder", Resource: "printer", TTL: time.Hour}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := d.as("bob", patient("a"), 0); err != nil {
		t.Fatal(err)
	}
	d.after(waitTTL)
	if _, err := d.as("alice", claim.End{ID: "holder"}, 0); err != nil {
		t.Fatal(err)
	}
	if was := d.get("a"); was.Status != claim.Aborted || was.EndedBy != "" {
		t.Errorf("%s, ended by %q", was.Status, was.EndedBy)
	}
}

// TestGuessedOwner: a caller that may hold a resource, and not read it, cannot find out whether a guessed owner is the
// holder.
func TestGuessedOwner(t *testing.T) {
	const token = uint64(start) + 1
	for name, cmd := range map[string]func(owner string) claim.Command{
		"release": func(owner string) claim.Command { return claim.Release{Resource: "printer", Owner: owner} },
		"release with the token": func(owner string) claim.Command {
			return claim.Release{Resource: "printer", Owner: owner, Token: token}
		},
		"release with another token": func(owner string) claim.Command {
			return claim.Release{Resource: "printer", Owner: owner, Token: token - 1}
		},
		"lock": func(owner string) claim.Command {
			return claim.Acquire{ID: "b", Resource: "printer", Owner: owner, TTL: time.Second}
		},
		"lock with the token": func(owner string) claim.Command {
			return claim.Acquire{ID: "b", Resource: "printer", Owner: owner, TTL: time.Second, Token: token}
		},
		"lock with another token": func(owner string) claim.Command {
			return claim.Acquire{ID: "b", Resource: "printer", Owner: owner, TTL: time.Second, Token: token - 1}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := setup(t)
			made, err := d.as("alice", claim.Acquire{ID: "a", Resource: "printer", Owner: "jim", TTL: time.Minute}, 0)
			if err != nil || made.Token != token {
				t.Fatalf("made %+v, %v", made, err)
			}
			for _, owner := range []string{"jim", "joe"} {
				if _, err := d.as("mallory", cmd(owner), 0); !collides(err) {
					t.Errorf("with the owner %s: %v", owner, err)
				}
			}
			if _, err := d.as("reader", cmd("jim"), access.Read); collides(err) {
				t.Errorf("who may read it: %v", err)
			}
			if got := d.get("a"); got.Version != made.Version {
				t.Errorf("a refusal changed %+v to %+v", made, got)
			}
		})
	}
}
