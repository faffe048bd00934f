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

// Begin carries out a batch in a transaction of begin, and does not wait for its commit.
func Begin(batch Batch, begin func(fn func(Tx) error) (Completion, error)) (outcome Outcome, commit Completion, err error) {
	commit, err = begin(func(tx Tx) (err error) {
		outcome, err = batch.CarryOut(tx)
		return err
	})
	if err != nil {
		return Outcome{}, nil, err
	}
	return outcome, commit, nil
}

// CarryOut carries out a batch inside a transaction. A panic is an error of this batch alone.
func (b Batch) CarryOut(tx Tx) (o Outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a transaction: %v\n%s", p, debug.Stack())
		}
	}()
	cmds := make([]claim.Command, len(b.Requests))
	for i, r := range b.Requests {
		cmds[i] = r.Command
	}
	o.Answers = make([]claim.Answer, len(b.Requests))
	queues, err := Execute(tx, cmds, func(queues *claim.Queues) {
		for i, r := range b.Requests {
			o.Answers[i] = queues.Answer(r)
		}
	})
	if err != nil {
		return Outcome{}, err
	}
	o.Now, o.Changes = queues.Now, queues.Changes()
	changed := queues.Changed()
	o.Committed = len(changed)+len(queues.ChangedSessions()) > 0
	for _, q := range changed {
		if q.Unsettled() {
			o.Unsettled = append(o.Unsettled, q.Resource)
		}
	}
	return o, nil
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
