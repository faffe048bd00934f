package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/hold"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

// explained is how many holders, and how many waiting claims, are explained one by one.
const explained = 5

func newExplainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain NAME",
		Short: "Say in sentences why a resource is held, until when, and what would free it",
		Long: `Say in sentences who holds a resource, since when and until when at the latest, what would free it, which claims wait,
what the holders wait for themselves, and whether that is a deadlock. "locket resource NAME" shows the same as a table.`,
		Example: `  locket explain backup
  locket explain backup -o json
  locket explain backup -o 'jsonpath=$.explanation[*]'`,
	}
	return clientCommand(cmd, func(ctx context.Context, c *connect.Connection, args []string) (show.View, error) {
		return explain(ctx, c, args[0])
	})
}

// explain reads a queue, and what else is needed to explain it: the sessions of the first holders, or, of a resource
// that nobody holds, the claim that ended last. What of these the caller may not see is left out.
func explain(ctx context.Context, c *connect.Connection, name string) (show.View, error) {
	queue, err := c.GetQueue(ctx, &models.GetQueueRequest{Resource: name, Limit: proto.Uint32(explained)})
	if err != nil {
		return nil, err
	}
	e := explainer{queue: queue, now: time.Now()}
	if len(queue.GetHolders()) == 1 {
		e.value = hold.ValueOf(queue.GetHolders()[0])
	}
	for _, holder := range firstOf(queue.GetHolders()) {
		if id := holder.GetSession(); id != "" && e.session(id) == nil {
			if s, err := c.GetSession(ctx, &models.GetSessionRequest{Id: id}); err == nil {
				e.sessions = append(e.sessions, jsonview.OfSession(s))
			}
		}
	}
	if len(queue.GetHolders()) == 0 && queue.GetVersion() > 0 {
		ended := &models.ListClaimsRequest{Resource: &name, Status: final, Order: models.Order_ORDER_NEWEST, Limit: proto.Uint32(1)}
		if page, err := c.ListClaims(ctx, ended); err == nil && len(page.GetClaims()) == 1 {
			e.last = page.GetClaims()[0]
		}
	}
	return e.explanation(), nil
}

func firstOf(claims []*models.Claim) []*models.Claim { return claims[:min(explained, len(claims))] }

// explanation is a queue in sentences.
type explanation struct {
	Explanation []string           `json:"explanation"`
	Deadlock    bool               `json:"deadlock"`
	Queue       jsonview.Queue     `json:"queue"`
	Sessions    []jsonview.Session `json:"sessions"`
}

func (v explanation) Names() []string { return queueView{Queue: v.Queue}.Names() }

func (v explanation) Text(show.Look) string { return strings.Join(v.Explanation, "\n") + "\n" }

// explainer makes sentences of a queue.
type explainer struct {
	queue    *models.Queue
	sessions []jsonview.Session
	last     *models.Claim // that ended last, if nobody holds the resource
	value    string        // of a single holder
	now      time.Time
	lines    []string
}

func (e *explainer) say(format string, args ...any) {
	e.lines = append(e.lines, strings.TrimSpace(fmt.Sprintf(format, args...)))
}

func (e *explainer) explanation() explanation {
	v := explanation{Queue: viewQueue(e.queue).Queue, Sessions: append([]jsonview.Session{}, e.sessions...)}
	v.Deadlock = queueView{Queue: v.Queue}.isDeadlock()
	switch holders := e.queue.GetHolders(); len(holders) {
	case 0:
		e.free()
	case 1:
		e.holder(holders[0])
	default:
		e.sharedBy(len(holders))
	}
	if v.Deadlock {
		e.sayDeadlock(v.Queue)
	}
	e.wayOut()
	if len(e.queue.GetHolders()) > 1 {
		e.sharers()
	}
	e.waiters(v.Queue)
	e.elsewhere(v.Queue)
	v.Explanation = e.lines
	return v
}

// resource is the resource's name.
func (e *explainer) resource() string { return printable.Quoted(e.queue.GetResource()) }

func (e *explainer) free() {
	switch {
	case e.queue.GetVersion() == 0:
		e.say("%s is free: nobody holds it, and nothing is known of an earlier use.", e.resource())
	case e.last == nil:
		e.say("%s is free: nobody holds it.", e.resource())
	default:
		ended := viewClaim(e.last)
		e.say("%s is free: nobody holds it. The last claim of it was %s, of %s, which was %s %s%s.", e.resource(), ended.ID, whose(e.last),
			ended.Status, e.when(ended.since()), because(e.last))
	}
	if e.queue.GetWaiting() == 0 {
		e.say("The next claim will hold it.")
	} else {
		e.say("After a restore nothing is granted for a time: locket status tells for how long.")
	}
}

// because is why a claim ended, if anybody said so.
func because(c *models.Claim) string {
	if c.GetReason() == "" {
		return ""
	}
	return ", because " + printable.Quoted(c.GetReason())
}

func (e *explainer) holder(h *models.Claim) {
	value := ""
	if e.value != "" {
		value = " (" + e.value + ")"
	}
	e.say("%s is held by %s%s since %s, by the claim %s with token %d%s. %s", e.resource(), whose(h), value, e.when(viewClaim(h).since()), h.GetId(), h.GetToken(), sharing(h), e.end("It", h))
}

// sharing says of a single holder that others may join it.
func sharing(h *models.Claim) string {
	if h.GetMode() != models.Mode_MODE_SHARED {
		return ""
	}
	return ", in shared mode"
}

func (e *explainer) sharedBy(holders int) { e.say("%s is shared by %d claims.", e.resource(), holders) }

// sharers names the holders of a shared resource.
func (e *explainer) sharers() {
	holders := e.queue.GetHolders()
	for _, h := range firstOf(holders) {
		e.say("%s holds it since %s, by the claim %s with token %d. %s", whose(h), e.when(viewClaim(h).since()), h.GetId(), h.GetToken(), e.end("That", h))
	}
	if more := len(holders) - explained; more > 0 {
		e.say("%d more hold it: locket resource %s", more, printable.ShellQuoted(e.queue.GetResource()))
	}
}

// end says when a claim that holds ends at the latest.
func (e *explainer) end(what string, h *models.Claim) string {
	switch {
	case h.GetSession() != "":
		return fmt.Sprintf("%s ends with %s.", what, e.sessionState(h.GetSession()))
	case h.Ttl == nil:
		return ""
	case h.GetTtl() <= 0:
		return what + " is due: its lease has ended, and it expires unless it is renewed first. The next claim takes the resource over."
	default:
		left := time.Duration(h.GetTtl() * float64(time.Second))
		return fmt.Sprintf("%s ends at %s at the latest, in %s, unless it is renewed.", what, e.leaseEnd(h, left).Add(time.Second-1).Format(time.RFC3339), printable.Duration(left, 2))
	}
}

// leaseEnd is when a lease ends, by the server's clock, as all times of its claim are.
func (e *explainer) leaseEnd(h *models.Claim, left time.Duration) time.Time {
	held := viewClaim(h).since()
	if held.Age == nil {
		return e.now.Add(left).UTC()
	}
	return held.At.Add(*held.Age + left)
}

func (e *explainer) session(id string) *jsonview.Session {
	i := slices.IndexFunc(e.sessions, func(s jsonview.Session) bool { return s.ID == id })
	if i < 0 {
		return nil
	}
	return &e.sessions[i]
}

// sessionState names a session, and says for how long it lives.
func (e *explainer) sessionState(id string) string {
	name := "the session " + printable.Quoted(id)
	switch s := e.session(id); {
	case s == nil:
		return name + ", which is ending, or is one that you may not see"
	case s.EndsIn == nil:
		server := ""
		if s.Server != nil {
			server = " to " + printable.Quoted(*s.Server)
		}
		return fmt.Sprintf("%s, which is attached%s, and lives until %s after its client was last heard from", name, server, printable.Duration(s.TTL.Duration(), 2))
	case *s.EndsIn <= 0:
		return name + ", whose client is gone, and which is ending now"
	default:
		return fmt.Sprintf("%s, whose client is gone: in %s at the latest, unless it is resumed", name, printable.Duration(s.EndsIn.Duration(), 2))
	}
}

// waiters describes the first waiting claims.
func (e *explainer) waiters(q jsonview.Queue) {
	for i, w := range firstOf(e.queue.GetWaiters()) {
		what := "waits"
		if i == 0 {
			what = "is next, and waits"
		}
		line := fmt.Sprintf("%s %s since %s, by the claim %s, %s", whose(w), what, e.when(viewClaim(w).since()), w.GetId(), queueView{Queue: q}.reasonNamed(i))
		if w.WaitTtl != nil {
			longest := time.Duration(w.GetWaitTtl() * float64(time.Second))
			line += fmt.Sprintf("; it leaves the queue if nobody asks about it for %s", printable.Duration(longest, 2))
		}
		e.say("%s.", line)
	}
	if more := e.queue.GetWaiting() - uint64(len(firstOf(e.queue.GetWaiters()))); more > 0 {
		e.say("And %d more: locket resource %s --limit 1000", more, printable.ShellQuoted(e.queue.GetResource()))
	}
}

// elsewhere says whom the holders wait for.
func (e *explainer) elsewhere(q jsonview.Queue) {
	for _, w := range q.Waits[:min(explained, len(q.Waits))] {
		e.say("%s waits for %s since %s: %s.", nameOf(w.Waiter), printable.Quoted(w.Resource), e.when(show.Moment{At: time.Time(w.Waiter.Since)}), inTheWay(w))
	}
	if more := len(q.Waits) - explained; more > 0 {
		e.say("%d more wait for each other in this way: locket resource %s", more, printable.ShellQuoted(q.Resource))
	}
}

// sayDeadlock says that the holders wait for each other, and the cheapest way out: of the claims that wait for this resource in the
// cycle the youngest gives up its place; nobody loses what it holds.
func (e *explainer) sayDeadlock(q jsonview.Queue) {
	var youngest jsonview.ClaimRef
	for _, w := range q.Waits {
		if w.Resource == q.Resource && time.Time(w.Waiter.Since).After(time.Time(youngest.Since)) {
			youngest = w.Waiter
		}
	}
	e.say("This is a deadlock: its holder waits for claims that wait for it. The cheapest way out: %s stops waiting (locket release --id %s), or an administrator ends that wait (locket revoke %[2]s --reason WHY). Nobody loses what it holds.",
		nameOf(youngest), youngest.Claim)
}

// wayOut describes how to free the resource.
func (e *explainer) wayOut() {
	holders := e.queue.GetHolders()
	next := "Then it is free"
	if e.queue.GetWaiting() > 0 {
		next = "Then the next claim holds it"
	}
	switch len(holders) {
	case 0:
	case 1:
		e.say("To free it, its holder releases it (locket release --id %s), or an administrator revokes it (locket revoke %[1]s --reason WHY). %s.", holders[0].GetId(), next)
	default:
		e.say("To free it, each of its holders releases it (locket release --id ID), or an administrator revokes its claim (locket revoke ID --reason WHY). %s.", next)
	}
}

// whose names the owner of a claim, and who that was authenticated as.
func whose(c *models.Claim) string {
	name := nameOf(refOf(c))
	if c.GetIdentity() != "" {
		name += " (" + printable.Quoted(c.GetIdentity()) + ")"
	}
	return name
}

// when is a moment, and how long ago it was.
func (e *explainer) when(m show.Moment) string {
	return m.At.Format(time.RFC3339) + " (" + show.Look{Now: e.now}.Ago(m) + ")"
}
