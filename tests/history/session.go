package history

import (
	"fmt"
	"slices"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

// The operations of sessions. Commands without a resource are about the session itself.
const (
	lock      special = "lock"
	unlock    special = "unlock"
	stands    special = "stands"
	unlockAll special = "unlock all"
	closing   special = "close"
	closed    special = "closed"
	lapse     special = "lapse"
	opened    special = "opened"
	heartbeat special = "heartbeat"
)

// Lock is the LOCK of a session, whose owner has its name. A session that holds the resource or waits
// for it keeps its claim.
func Lock(resource, session string, mode claim.Units) Request {
	return LockFor(resource, session, session, mode, false)
}

// TryLock is the TRY_LOCK of a session, as Lock.
func TryLock(resource, session string, mode claim.Units) Request {
	return LockFor(resource, session, session, mode, true)
}

// LockFor is Lock, or TryLock, of a session with an owner.
func LockFor(resource, session, owner string, mode claim.Units, try bool) Request {
	return Request{Resource: resource, Session: session, special: lock, command: claim.Create{
		Resource: resource, Owner: owner, Units: mode, NoWait: try, Session: session, Server: anyServer,
	}}
}

// Unlock is the UNLOCK of a session.
func Unlock(resource, session string) Request {
	return Request{Resource: resource, Session: session, special: unlock}
}

// Stands is a session's state for a resource at some moment of the operation.
func Stands(resource, session string) Request {
	return Request{Resource: resource, Session: session, special: stands}
}

// UnlockAll is the UNLOCK_ALL of a session, as far as a resource is concerned. The session hears of the result before
// the answer.
func UnlockAll(resource, session string) Request {
	return Request{Resource: resource, Session: session, special: unlockAll}
}

// Close is the CLOSE of a session, as far as a resource is concerned.
func Close(resource, session string) Request {
	return Request{Resource: resource, Session: session, special: closing}
}

// Closed is a CLOSE that was answered.
func Closed(session string) Request { return Request{Session: session, special: closed} }

// Opened is an OPEN, or a resumption, of a session that was accepted.
func Opened(session string, ttl time.Duration) Request {
	return Request{Session: session, special: opened, ttl: ttl}
}

// Heartbeat is a heartbeat that was acknowledged; only such belong into a history.
func Heartbeat(session string, ttl time.Duration) Request {
	return Request{Session: session, special: heartbeat, ttl: ttl}
}

// trust returns until when the clients of sessions could trust them: the TTL after the sending of the last OPEN or heartbeat
// that was acknowledged.
func trust(ops []Operation) map[string]int64 {
	until := make(map[string]int64)
	for i := range ops {
		if op := &ops[i]; op.special == opened || op.special == heartbeat {
			until[op.Session] = max(until[op.Session], op.Call+int64(op.ttl))
		}
	}
	return until
}

// checkEnded returns an error if a session did something after it had ended: over has when the
// sessions had certainly ended.
func checkEnded(ops []Operation, over map[string]int64) error {
	for i := range ops {
		if op := &ops[i]; op.special == closed && !op.Unknown {
			if at, known := over[op.Session]; !known || op.Return < at {
				over[op.Session] = op.Return
			}
		}
	}
	for i := range ops {
		op := &ops[i]
		at, ended := over[op.Session]
		switch {
		case op.Session == "" || !ended || op.Call <= at || op.Unknown:
		case op.special == closed, op.special == closing, op.special == unlock && op.None, op.special == stands && op.None:
		default:
			return fmt.Errorf("session %q had ended by %d us, and then: %s", op.Session, at/1000, op)
		}
	}
	return nil
}

// late divides the locks that were answered when the wait was over, since the server did not know the outcome of its first attempt:
// into the request, and the state that the session was told.
func late(ops []Operation, stored []claim.Claim) (all []Operation) {
	type change struct { // versions of different resources may be equal
		resource, session string
		version           uint64
	}
	waited, explained := make(map[change]uint64), make(map[change]bool)
	for i := range stored {
		if c := &stored[i]; c.Session != "" && c.Token > c.Enqueued+1 {
			waited[change{c.Resource, c.Session, c.Token}] = c.Enqueued
		}
	}
	for i := range ops {
		explained[change{ops[i].Resource, ops[i].Session, ops[i].Version}] = true
	}
	for _, op := range ops {
		enqueued, is := waited[change{op.Resource, op.Session, op.Token}]
		if is = is && op.special == lock && op.Status == claim.Active && !explained[change{op.Resource, op.Session, enqueued}]; is && !asked(ops, &op) {
			told := Operation{op.Call, op.Return, Stands(op.Resource, op.Session), op.Output}
			op.Output = Output{Status: claim.Waiting, Version: enqueued}
			all = append(all, op, told)
			explained[change{op.Resource, op.Session, enqueued}] = true
			continue
		}
		all = append(all, op)
	}
	return all
}

// asked reports whether the session of a lock had asked for the resource before, without an answer that shows a version.
func asked(ops []Operation, of *Operation) bool {
	return slices.ContainsFunc(ops, func(op Operation) bool {
		return op.special == lock && op.Session == of.Session && op.Resource == of.Resource && op.Call < of.Call && (op.Unknown || op.Status == claim.Waiting && op.Version == 0)
	})
}
