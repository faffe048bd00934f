package db

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/locket-service/locket/internal/rules/claim"
)

// Transact has a store carry out a batch, and waits for its commit.
func Transact(ctx context.Context, store Transactor, batch Batch) (Outcome, error) {
	outcome, commit, err := store.Transact(ctx, batch)
	if err == nil && commit != nil {
		err = commit.Wait(ctx)
	}
	if err != nil {
		return Outcome{}, err
	}
	return outcome, nil
}

// CarryOut carries out a batch in a transaction of an engine's Updater, and commits it.
func CarryOut(ctx context.Context, engine Updater, batch Batch) (outcome Outcome, err error) {
	err = engine.Update(ctx, func(tx Tx) (err error) {
		outcome, err = batch.CarryOut(tx) // the last attempt decides
		return err
	})
	if err != nil {
		return Outcome{}, err
	}
	return outcome, nil
}

// CarryOut carries out a batch inside a transaction. A panic is an error of this batch alone.
func (b Batch) CarryOut(tx Tx) (Outcome, error) {
	parts, err := CarryOutAll(tx, []Batch{b})
	if err != nil {
		return Outcome{}, err
	}
	return parts[0].Outcome, nil
}

// Part is the outcome of one batch of a transaction.
type Part struct {
	Outcome
	// Transitions are all changes of claims, in order.
	Transitions []claim.Transition
}

// CarryOutAll carries out batches, one after the other, inside one transaction. Committed is the same for all. The Unsettled
// resources are in the last outcome. A panic is an error of all.
func CarryOutAll(tx Tx, batches []Batch) (parts []Part, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a transaction: %v\n%s", p, debug.Stack())
		}
	}()
	n := 0
	for _, b := range batches {
		n += len(b.Requests)
	}
	cmds := make([]claim.Command, 0, n)
	for _, b := range batches {
		for _, r := range b.Requests {
			cmds = append(cmds, r.Command)
		}
	}
	parts = make([]Part, len(batches))
	queues, err := Execute(tx, cmds, func(queues *claim.Queues) {
		for i, b := range batches {
			parts[i] = b.answer(queues)
		}
	})
	if err != nil {
		return nil, err
	}
	finish(parts, queues)
	return parts, nil
}

// answer carries out the requests of a batch.
func (b Batch) answer(queues *claim.Queues) (part Part) {
	begin := len(queues.Transitions())
	part.Answers = make([]claim.Answer, len(b.Requests))
	for i, r := range b.Requests {
		part.Answers[i] = queues.Answer(r)
	}
	part.Transitions = queues.Transitions()[begin:]
	return part
}

// finish completes the outcomes of all batches of a transaction.
func finish(parts []Part, queues *claim.Queues) {
	changed := queues.Changed()
	for i := range parts {
		o := &parts[i].Outcome
		o.Now, o.Committed = queues.Now, len(changed)+len(queues.ChangedSessions()) > 0
		if o.Changes = queues.Changes(); len(parts) > 1 {
			o.Changes = claim.Net(parts[i].Transitions)
		}
	}
	last := &parts[len(parts)-1]
	for _, q := range changed {
		if q.Unsettled() {
			last.Unsettled = append(last.Unsettled, q.Resource)
		}
	}
}

// Execute loads the queues for the commands, calls run, which carries them out, and saves the changes. The returned
// queues hold the transitions.
func Execute(tx Tx, cmds []claim.Command, run func(*claim.Queues)) (*claim.Queues, error) {
	queues, err := tx.Load(targets(cmds))
	if err != nil {
		return nil, err
	}
	run(queues)
	if err := queues.Err(); err != nil {
		return nil, err
	}
	return queues, tx.Save(queues)
}

// targets returns everything that the commands need loaded, sorted, without duplicates. The order prevents deadlocks
// between servers that lock the same rows.
func targets(cmds []claim.Command) Wanted {
	w := Wanted{Resources: make([]string, 0, len(cmds))}
	for _, cmd := range cmds {
		for _, target := range cmd.Targets() {
			w.add(target)
		}
	}
	for _, names := range []*[]string{&w.Resources, &w.Claims, &w.Sessions, &w.Ending, &w.Withdrawing, &w.WholeHolders, &w.WholeClaims} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}
	return w
}

func (w *Wanted) add(target claim.Target) {
	if target.Resource != "" {
		w.Resources = append(w.Resources, target.Resource)
	}
	if target.ID != "" {
		w.Claims = append(w.Claims, target.ID)
	}
	if target.Session != "" {
		w.Sessions = append(w.Sessions, target.Session)
	}
	switch {
	case target.Claims && target.Waiting:
		w.Withdrawing = append(w.Withdrawing, target.Session)
	case target.Claims:
		w.Ending = append(w.Ending, target.Session)
	case target.Whole && target.ID != "":
		w.WholeClaims = append(w.WholeClaims, target.ID)
	case target.Whole:
		w.WholeHolders = append(w.WholeHolders, target.Resource)
	}
}
