package claim_test

import (
	"errors"
	"testing"
	"time"

	"github.com/locket-service/locket/internal/claim"
)

var errDenied = errors.New("denied")

// as carries out a command for an identity that may do to the claims of others what allowed says.
func (d *desk) as(identity string, cmd claim.Command, allowed ...claim.Action) (claim.Claim, error) {
	d.queues.Now = d.now
	c, err := d.queues.DoFor(claim.Caller{Identity: identity, Permit: func(a claim.Action, c *claim.Claim) error {
		if c.Identity == identity {
			return nil
		}
		for _, one := range allowed {
			if a == one {
				return nil
			}
		}
		return errDenied
	}}, cmd)
	if c == nil {
		return claim.Claim{}, err
	}
	return *c, err
}

func TestIdentities(t *testing.T) {
	ttl := time.Second
	for name, c := range map[string]struct {
		cmd   claim.Command
		needs claim.Action
	}{
		"renew":           {claim.Renew{ID: "a", TTL: ttl}, claim.ToRenew},
		"ask":             {claim.Activate{ID: "a"}, claim.ToSee},
		"end":             {claim.End{ID: "a"}, claim.ToEnd},
		"revoke":          {claim.SetStatus{ID: "a", Status: claim.Revoked}, claim.ToEnd},
		"release":         {claim.Release{Resource: "printer", Owner: "jim"}, claim.ToEnd},
		"lock again":      {claim.Acquire{ID: "b", Resource: "printer", Owner: "jim", TTL: ttl}, claim.ToRenew},
		"lock with token": {claim.Acquire{ID: "b", Resource: "printer", Owner: "jim", TTL: ttl, Token: uint64(start) + 1}, claim.ToRenew},
	} {
		t.Run(name, func(t *testing.T) {
			d := setup(t)
			made, err := d.as("alice", claim.Acquire{ID: "a", Resource: "printer", Owner: "jim", TTL: time.Minute})
			if err != nil || made.Identity != "alice" || made.Token != uint64(start)+1 {
				t.Fatalf("made %+v, %v", made, err)
			}
			if _, err := d.as("mallory", c.cmd); !errors.Is(err, errDenied) {
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
	if _, err := d.as("alice", request("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.as("mallory", claim.Activate{ID: "a", TTL: &ttl}, claim.ToSee); !errors.Is(err, errDenied) {
		t.Errorf("who may see it renews it: %v", err)
	}
}

func TestIdentityOfARepeatedRequest(t *testing.T) {
	d := setup(t)
	if _, err := d.as("alice", request("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.as("mallory", request("a"), claim.ToSee); !errors.Is(err, claim.ErrIDTaken) {
		t.Errorf("another identity takes the claim for its own: %v", err)
	}
	if again, err := d.as("alice", request("a")); err != nil || again.Identity != "alice" {
		t.Errorf("%+v, %v", again, err)
	}
}

func TestLockOfAnotherIdentityIsTakenWhenDue(t *testing.T) {
	d := setup(t)
	lock := claim.Acquire{ID: "a", Resource: "printer", Owner: "jim", TTL: time.Second}
	if _, err := d.as("alice", lock); err != nil {
		t.Fatal(err)
	}
	d.after(time.Second)
	lock.ID = "b"
	taken, err := d.as("bob", lock)
	if err != nil || taken.ID != "b" || taken.Identity != "bob" {
		t.Errorf("%+v, %v", taken, err)
	}
	if was := d.get("a"); was.Status != claim.Expired || was.EndedBy != "" {
		t.Errorf("the one before: %+v", was)
	}
}
