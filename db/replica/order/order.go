// Package order is the contract between the servers of a cluster and the log that they share. One server at a time, the
// decider, appends records to the log; every server applies them in order. The log is fenced: a record names
// the epoch of its decider, and is refused once a later epoch has begun. So a deposed decider changes nothing.
//
// Package etcdlog keeps the log in etcd.
package order

import (
	"context"
	"errors"
)

var (
	// ErrDeposed is returned when another epoch has begun. The record is not in the log, and never will be.
	ErrDeposed = errors.New("another server decides")
	// ErrUnavailable is returned when the log does not answer, or has no quorum.
	ErrUnavailable = errors.New("the log of the cluster does not answer")
	// ErrTrimmed is returned when the next record is no longer in the log: the server needs another server's snapshot.
	ErrTrimmed = errors.New("the records are no longer in the log of the cluster")
	// ErrBehind is returned when the log ends before a record that this server has: the log was taken back to an older state.
	ErrBehind = errors.New("the log of the cluster is older than this server's data")
	// ErrTooLarge is returned for a record that the log does not take. It is not in the log, and never will be.
	ErrTooLarge = errors.New("the record is too large for the log of the cluster")
)

// MaxRecord is the size of the largest record, in bytes. etcd's own limit for a request is 1.5 MiB.
const MaxRecord = 1 << 20

// Epoch is the time of one decider.
type Epoch struct {
	// Number rises by one from each epoch to the next. It is 0 before the first.
	Number uint64
	// Decider is the address of the decider and the secret for calls to it. It is empty when nobody decides: before
	// the first epoch, and after a decider has resigned.
	Decider []byte
}

// Event is a change of the log. It is a record, the beginning of an epoch, or a beat.
type Event struct {
	// Index is the index of the record, 0 if the event is none. The first record has the index 1.
	Index uint64
	// Data is the record. Nobody changes it.
	Data []byte
	// Epoch is the epoch that has begun, nil if none has.
	Epoch *Epoch
}

// Log is the log of a cluster, as one of its servers uses it. Its methods may be called concurrently. All errors but the
// documented ones wrap ErrUnavailable. The end of a context ends each method.
type Log interface {
	// Cluster returns the id of the cluster. If there is none yet it becomes the proposed one, and the log begins behind an index, 0
	// for an empty one: it then has an empty record with that index, so that a server without the records before gets ErrTrimmed.
	// With the proposal 0 nothing begins, and the id is 0 if there is none.
	Cluster(ctx context.Context, proposed, last uint64) (id uint64, err error)

	// Append commits a record with an index in an epoch. The record before must be in the log: otherwise the error is
	// ErrBehind, or ErrTrimmed if the log has later ones. The error is ErrDeposed if another epoch has begun, and ErrTooLarge
	// for a record above MaxRecord. After any other error the outcome is unknown: the record may still be committed, until
	// Raise has returned. Append finds out by itself, as long as ctx lasts, whether a record that may have been committed was.
	// The same record may be appended again.
	Append(ctx context.Context, epoch, index uint64, data []byte) error

	// Beat commits a sign that the decider of an epoch can commit. Its errors are Append's.
	Beat(ctx context.Context, epoch uint64) error

	// Raise begins the epoch after one, with a decider, or with none, for a server that has the records up to one. The error is
	// ErrDeposed if another epoch has begun, or if the log has a later record, or a beat that this server has not seen: the decider
	// is alive, and this server lags. A beat was seen when Follow has given it, or an earlier Raise was refused. None is looked for
	// without a decider. The error is ErrBehind if the log ends before that record. No record of an earlier epoch is committed after it. If its outcome is
	// unknown, Follow tells.
	Raise(ctx context.Context, after, last uint64, decider []byte) error

	// Last returns the index of the last record, for a server that has applied the records up to one. Every record
	// whose commit anybody has learnt of before the call is at or below it. It returns ErrBehind, or ErrTrimmed.
	Last(ctx context.Context, applied uint64) (index uint64, err error)

	// Follow calls event for each change of the log: first for the current epoch, and for the last beat if it is new to this
	// server, then for each record after one, and for
	// the epochs and beats between them, in the order of their commits. It returns the error of event, of ctx,
	// ErrTrimmed, ErrBehind, or ErrUnavailable when it has lost the log; then call it again.
	Follow(ctx context.Context, after uint64, event func(Event) error) error

	// Trim deletes the records up to one, except the last one of the log.
	Trim(ctx context.Context, upTo uint64) error

	// Announce writes what a server says about itself under its name, or deletes it if about is nil. Announced returns it for
	// all servers, by name.
	Announce(ctx context.Context, server string, about []byte) error
	// Announced is described with Announce.
	Announced(ctx context.Context) (map[string][]byte, error)

	// Close ends all use of the log.
	Close() error
}
