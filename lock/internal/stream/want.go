package stream

import (
	"time"

	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/models"
)

// Want describes a requested lock.
type Want struct {
	Mode          models.Mode
	Value         string
	TypeCode      models.TypeCode
	AllowDeadlock bool
	UserData      *string
	// Alone, if it is set, identifies a claim that is not shared with other goroutines. Different pointers mean
	// different claims.
	Alone *byte

	// TTL selects the session; 0 is the usual one.
	TTL time.Duration
	// Timeout bounds the commands, if it is not 0.
	Timeout time.Duration
	// ExcludesAfterLoss is set if the hold excludes other goroutines of the session until it is released, even after
	// the session has lost it.
	ExcludesAfterLoss bool
	// Watcher, unless it is nil, is notified when the session loses the lock.
	Watcher *Watcher

	observer *base.Observer
}

func (a *Want) shared() bool { return a.Mode == models.Mode_MODE_SHARED }

// same reports whether a claim made for other would also serve a. Whether they allow deadlocks does not matter.
func (a *Want) same(other *Want) bool {
	return a.Mode == other.Mode && a.Value == other.Value && a.TypeCode == other.TypeCode && a.Alone == other.Alone &&
		(a.UserData == nil) == (other.UserData == nil) && (a.UserData == nil || *a.UserData == *other.UserData)
}

// joins reports whether the lock may be held together with others, by the claim that they have requested.
func (a *Want) joins(other *Want) bool { return a.shared() && a.same(other) }
