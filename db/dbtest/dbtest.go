// Package dbtest, for this module only, is the suite that every engine of package db passes. It is tested
// itself, against stores with faults (broken_test.go).
package dbtest

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Engine is a new, empty database and a server on it. The functions clean up behind
// themselves with t.Cleanup.
type Engine struct {
	Store db.Store
	// Reopen closes the store, opens the same database again, and fails the test when
	// either fails.
	Reopen func(t testing.TB) db.Store
	// Second opens one more server on the same database, and may be called again for
	// a third. It is nil when the engine allows one server only.
	Second func(t testing.TB) db.Store
	// Step sets by how much the database's clock is wrong from now on, for Store.
	Step func(by time.Duration)
}

// Case is one property of a store. It gets a store of its own.
type Case struct {
	Name string
	Run  func(t testing.TB, e Engine)
	// Servers says that the case needs a second server.
	Servers bool
	// Clock says that the case is about the clock of the server itself.
	Clock bool
}

// Cases returns the whole suite.
func Cases() []Case {
	return slices.Concat(columnCases, txCases, queueCases, readCases, waitCases, snapshotCases, listCases, resourceCases, pruneCases, clockCases, sessionCases, sessionEndCases, sessionDueCases, countCases, largeCases, serverCases)
}

// Run runs the suite against new stores from open. The cases run in parallel: most of them wait for a disk.
func Run(t *testing.T, open func(t testing.TB) Engine) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			RunCase(t, c, open)
		})
	}
}

// RunAlone is Run for an engine that allows one server only, and works in bubbles of testing/synctest: in these time
// costs nothing.
func RunAlone(t *testing.T, open func(t testing.TB) Engine) {
	for _, c := range Cases() {
		if !c.Servers {
			t.Run(c.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { RunCase(t, c, open) })
			})
		}
	}
}

// RunCase runs one case against a new store from open.
func RunCase(t testing.TB, c Case, open func(t testing.TB) Engine) {
	t.Helper()
	e := open(t)
	if c.Servers && e.Second == nil {
		t.Fatal("the case needs a second server, and the engine has none")
	}
	must(t, e.Store.Beat(t.Context(), false))
	c.Run(t, e)
}

// Do carries out commands in one transaction, as the committer does, and returns their
// claims. Any error fails the test.
func Do(t testing.TB, s db.Store, cmds ...claim.Command) []claim.Claim {
	t.Helper()
	return DoAt(t, s, 0, cmds...)
}

// DoAt is Do at a time that is off from the transaction's. Do not use a later time where shared claims could be due.
func DoAt(t testing.TB, s db.Store, off time.Duration, cmds ...claim.Command) []claim.Claim {
	t.Helper()
	answers := try(t, s, off, cmds...)
	claims := make([]claim.Claim, len(answers))
	for i, a := range answers {
		if a.err != nil {
			t.Fatalf("%T: %v", cmds[i], a.err)
		}
		claims[i] = a.claim
	}
	return claims
}

// answer is the result of a command.
type answer struct {
	claim claim.Claim
	err   error
}

// try carries out commands that may be refused.
func try(t testing.TB, s db.Store, off time.Duration, cmds ...claim.Command) []answer {
	t.Helper()
	answers, _, err := transact(t.Context(), s, off, cmds...)
	must(t, err)
	return answers
}

// refuse carries out a command that must be refused, and returns why it was.
func refuse(t testing.TB, s db.Store, cmd claim.Command) error {
	t.Helper()
	err := try(t, s, 0, cmd)[0].err
	if err == nil {
		t.Fatalf("%T was not refused", cmd)
	}
	return err
}

func transact(ctx context.Context, s db.Store, off time.Duration, cmds ...claim.Command) (answers []answer, now claim.Instant, err error) {
	if off == 0 {
		outcome, err := db.Transact(ctx, s, db.Batch{Requests: requests("", cmds...)})
		for _, a := range outcome.Answers {
			answers = append(answers, answerOf(a.Claim, a.Err))
		}
		return answers, outcome.Now, err
	}
	err = Update(ctx, s, func(tx db.Tx) error {
		_, err := db.Execute(tx, cmds, func(queues *claim.Queues) {
			queues.Now = shift(queues.Now, off)
			now, answers = queues.Now, carryOut(queues, cmds)
		})
		return err
	})
	return answers, now, err
}

// Update runs a function in a transaction of an engine.
func Update(ctx context.Context, s db.Store, fn func(db.Tx) error) error {
	return s.(db.Updater).Update(ctx, fn)
}

// requests makes requests by an identity, "" for nobody.
func requests(identity string, cmds ...claim.Command) []claim.Request {
	list := make([]claim.Request, len(cmds))
	for i, cmd := range cmds {
		list[i] = claim.Request{Caller: access.Caller{Identity: access.Identity{Name: identity}}, Command: cmd}
	}
	return list
}

// doFor carries out a batch that must succeed, with each of its requests.
func doFor(t testing.TB, s db.Store, batch db.Batch) db.Outcome {
	t.Helper()
	outcome, err := db.Transact(t.Context(), s, batch)
	must(t, err)
	equal(t, "answers", len(outcome.Answers), len(batch.Requests))
	for _, a := range outcome.Answers {
		must(t, a.Err)
	}
	return outcome
}

func carryOut(queues *claim.Queues, cmds []claim.Command) []answer {
	answers := make([]answer, len(cmds))
	for i, cmd := range cmds {
		answers[i] = answerOf(queues.Do(cmd))
	}
	return answers
}

// answerOf returns an answer; its claim is empty if the command is about none.
func answerOf(c *claim.Claim, err error) answer {
	if c == nil {
		return answer{err: err}
	}
	return answer{*c, err}
}

func shift(now claim.Instant, off time.Duration) claim.Instant {
	return claim.Instant{Wall: now.Wall.Add(off), Lease: now.Lease.Add(off)}
}

// load returns the queues that a transaction loads.
func load(t testing.TB, s db.Store, resources, ids []string) (queues *claim.Queues) {
	t.Helper()
	must(t, Update(t.Context(), s, func(tx db.Tx) (err error) {
		queues, err = tx.Load(db.Wanted{Resources: resources, Claims: ids})
		return err
	}))
	return queues
}

// row returns the stored row of a resource; its version is 0 when there is none.
func row(t testing.TB, s db.Store, resource string) claim.Row {
	t.Helper()
	return load(t, s, []string{resource}, nil).Resource(resource).Stored()
}

func get(t testing.TB, s db.Store, id string) claim.Claim {
	t.Helper()
	c, _, _, err := s.Get(t.Context(), id, 0)
	if err != nil {
		t.Fatalf("get %.40q: %v", id, err)
	}
	return c
}

func list(t testing.TB, s db.Store, f db.Filter) []claim.Claim {
	t.Helper()
	claims, _, err := s.List(t.Context(), f)
	must(t, err)
	return claims
}

func now(t testing.TB, s db.Store) claim.Instant {
	t.Helper()
	instant, err := s.Now(t.Context())
	must(t, err)
	return instant
}

// exclusive is a claim that waits its turn, and shared one that shares.
func exclusive(id, resource string) claim.Create {
	return claim.Create{ID: id, Resource: resource, Owner: "owner of " + id, TTL: time.Hour}
}

// EitherUnits makes an even number exclusive, and an odd one shared.
func EitherUnits(n int) claim.Units {
	if n%2 == 0 {
		return claim.Exclusive
	}
	return claim.Shared
}

func shared(id, resource string) claim.Create {
	c := exclusive(id, resource)
	c.Units = claim.Shared
	return c
}

// lasting is a claim that never falls due.
func lasting(cmd claim.Create) claim.Create {
	cmd.TTL = century
	return cmd
}

func released(id string) claim.SetStatus  { return claim.SetStatus{ID: id, Status: claim.Released} }
func withdrawn(id string) claim.SetStatus { return claim.SetStatus{ID: id, Status: claim.Withdrawn} }

func ids(claims []claim.Claim) []string {
	out := make([]string, len(claims))
	for i, c := range claims {
		out[i] = c.ID
	}
	return out
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[V any](t testing.TB, what string, got, want V) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %s, want %s", what, brief(got), brief(want))
	}
}

// same compares claims field by field.
func same(t testing.TB, what string, got, want claim.Claim) {
	t.Helper()
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range g.NumField() {
		field := g.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		if a, b := g.Field(i).Interface(), w.Field(i).Interface(); !reflect.DeepEqual(a, b) {
			t.Errorf("%s: %s is %s, want %s", what, field.Name, brief(show(a)), brief(show(b)))
		}
	}
}

func brief(v any) string {
	s := fmt.Sprintf("%+v", v)
	if _, ok := v.([]string); ok {
		s = fmt.Sprintf("%q", v)
	}
	if len(s) > 300 {
		s = fmt.Sprintf("%s… (%d bytes)", s[:300], len(s))
	}
	return s
}

func show(v any) any {
	if b, ok := v.([]byte); ok && b != nil {
		return "JSON " + string(b)
	}
	return v
}

func status(t testing.TB, s db.Store, id string, want claim.Status) {
	t.Helper()
	equal(t, "status of "+id, get(t, s, id).Status, want)
}
