package tracing

import (
	"cmp"
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
)

// Transaction implements committer.Tracer: it makes the spans of the commands of a transaction, and of the waits that
// it has ended.
func (t *Tracing) Transaction(tx committer.Transaction) {
	for _, cmd := range tx.Commands {
		span := trace.SpanContextFromContext(cmd.Context)
		if !span.IsSampled() {
			continue
		}
		t.command(cmd, &tx)
		if tx.Err == nil && cmd.Err == nil && cmd.Claim.Status.Live() {
			t.mu.Lock()
			t.made.add(cmd.Claim.ID, made{span, tx.End})
			t.mu.Unlock()
		}
	}
	if tx.Err == nil {
		t.waits(tx.Changes, tx.End)
	}
}

// Elsewhere makes the spans of the waits of claims made here that a transaction of another server has ended.
func (t *Tracing) Elsewhere(server string, changes []claim.Transition) {
	t.waits(changes, time.Time{}, attribute.String("locket.server", server))
}

// command makes the spans of one command: in the queue until the transaction begins, and in the transaction.
func (t *Tracing) command(cmd committer.Command, tx *committer.Transaction) {
	_, queued := t.tracer.Start(cmd.Context, "locket.queue", trace.WithTimestamp(cmd.Queued))
	queued.End(trace.WithTimestamp(tx.Begin))
	_, commit := t.tracer.Start(cmd.Context, "locket.commit", trace.WithTimestamp(tx.Begin), trace.WithAttributes(attribute.Int("locket.batch.requests", len(tx.Commands))))
	switch {
	case tx.Err != nil:
		commit.SetStatus(otelcodes.Error, "the transaction failed")
	case cmd.Claim.ID != "":
		commit.SetAttributes(attribute.String("locket.claim", cmd.Claim.ID)) // for readers who search for the locket.holder of a wait at another server
	}
	commit.End(trace.WithTimestamp(tx.End))
}

// waits makes the spans of the claims that have stopped waiting, at a time or, if it is zero, after as long as they have waited by the database's
// clock; and drops the claims that have ended.
func (t *Tracing) waits(changes []claim.Transition, end time.Time, about ...attribute.KeyValue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.made.empty() {
		return
	}
	ended := make(map[string]*claim.Claim) // the last holder whose claim has ended, by resource
	for _, change := range changes {
		if change.Before != nil && change.Before.Status == claim.Active && change.After.Status.Final() {
			ended[change.After.Resource] = change.After
		}
	}
	for _, change := range changes {
		if waiter, known := t.made.find(change.After.ID); known && change.StoppedWaiting() {
			t.wait(change.After, waiter, ended[change.After.Resource], end, about)
		}
	}
	for _, change := range changes {
		if change.After.Status.Final() {
			t.made.remove(change.After.ID)
		}
	}
}

// wait makes the span of a wait in the trace of the call that made the claim, with a link to the call of the holder
// that it waited for, if that claim was made here: of those made at other servers the call is not known, as nothing stores it.
func (t *Tracing) wait(c *claim.Claim, waiter made, holder *claim.Claim, end time.Time, about []attribute.KeyValue) {
	options := []trace.SpanStartOption{trace.WithTimestamp(waiter.at), trace.WithAttributes(about...), trace.WithAttributes(
		attribute.String("locket.claim", c.ID), attribute.String("locket.status", c.Status.String()),
	)}
	if holder != nil {
		options = append(options, trace.WithAttributes(attribute.String("locket.holder", holder.ID), attribute.String("locket.holder.status", holder.Status.String())))
		if before, known := t.made.find(holder.ID); known {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: before.span, Attributes: []attribute.KeyValue{attribute.String("locket.link", "holder")}}))
		}
	}
	if end.IsZero() { // the feed may report it later
		end = waiter.at.Add(cmp.Or(c.Activated, c.Finished).Sub(c.Created))
	}
	_, span := t.tracer.Start(trace.ContextWithRemoteSpanContext(context.Background(), waiter.span), "locket.wait", options...)
	span.End(trace.WithTimestamp(end))
}
