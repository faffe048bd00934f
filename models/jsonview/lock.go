package jsonview

import "github.com/locket-service/locket/models"

// Lock is a lock or a presence in a list.
type Lock struct {
	Key   string  `json:"key" doc:"The name of the lock."`
	Owner *string `json:"owner" doc:"The holder; null for a claim without an owner."`
	Value *string `json:"value" doc:"Text of the holder for others to read."`
	Type  *Type   `json:"type" doc:"Its purpose: lock or presence."`
}

// OfLock returns the view of a lock or a presence. The answer about one lock also has the member token, the token of
// its grant, which is never null.
func OfLock(r *models.Resource) Lock {
	return Lock{
		Key: r.GetKey(), Owner: unlessZero(r.GetOwner()), Value: unlessZero(r.GetValue()), Type: unlessZero(Type(r.GetTypeCode())),
	}
}
