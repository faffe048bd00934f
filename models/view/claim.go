package view

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/locket-service/locket/models"
)

// The views have the members that docs/rest.md describes, but for "url".

// claimView is a claim.
type claimView struct {
	ID              string          `json:"id"`
	Resource        string          `json:"resource"`
	Owner           *string         `json:"owner"`
	Mode            string          `json:"mode"`
	Type            *string         `json:"type"`
	Value           *string         `json:"value"`
	Status          string          `json:"status"`
	StatusHistory   []statusChange  `json:"status_history"`
	Created         timestamp       `json:"created"`
	TTL             *seconds        `json:"ttl"`
	ActiveDuration  *seconds        `json:"active_duration"`
	WaitingDuration seconds         `json:"waiting_duration"`
	UserData        json.RawMessage `json:"user_data"`
	Token           *uint64         `json:"token"`
	Position        *uint32         `json:"position"`
	Version         uint64          `json:"version"`
	Reason          *string         `json:"reason"`
}

type statusChange struct {
	Status    string    `json:"status"`
	Timestamp timestamp `json:"timestamp"`
}

func viewClaim(c *models.Claim) claimView {
	v := claimView{
		ID: c.GetId(), Resource: c.GetResource(), Owner: unlessZero(c.GetOwner()), Mode: modeName(c.GetMode()),
		Type: typeName(c.GetTypeCode()), Value: unlessZero(c.GetValue()), Status: statusName(c.GetStatus()),
		Created: timeOf(c.GetCreated()), WaitingDuration: seconds(c.GetWaitingDuration()), Token: unlessZero(c.GetToken()), Position: c.Position,
		Version: c.GetVersion(), Reason: unlessZero(c.GetReason()), StatusHistory: []statusChange{},
		TTL: (*seconds)(c.Ttl), ActiveDuration: (*seconds)(c.ActiveDuration), //nolint:protogetter // what is not given is not the same as 0
	}
	if c.UserData != nil {
		v.UserData = json.RawMessage(c.GetUserData())
	}
	for _, change := range c.GetStatusHistory() {
		v.StatusHistory = append(v.StatusHistory, statusChange{statusName(change.GetStatus()), timeOf(change.GetTimestamp())})
	}
	return v
}

// since is from when on the claim stands as it does.
func (v claimView) since() moment {
	m := moment{at: time.Time(v.Created)}
	if n := len(v.StatusHistory); n > 0 {
		m.at = time.Time(v.StatusHistory[n-1].Timestamp)
	}
	switch v.Status {
	case "waiting":
		m.age = v.WaitingDuration.pointer()
	case "active":
		m.age = v.ActiveDuration.pointer()
	}
	return m
}

// lockView is a lock or a presence that is held.
type lockView struct {
	Key   string  `json:"key"`
	Owner *string `json:"owner"`
	Value *string `json:"value"`
	Type  *string `json:"type"`
}

func viewLock(r *models.Resource) lockView {
	return lockView{
		Key: r.GetKey(), Owner: unlessZero(r.GetOwner()), Value: unlessZero(r.GetValue()), Type: typeName(r.GetTypeCode()),
	}
}

// heldView is a single lock.
type heldView struct {
	lockView
	Token uint64 `json:"token"`
}

func unlessZero[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

func modeName(m models.Mode) string { return strings.ToLower(strings.TrimPrefix(m.String(), "MODE_")) }

func statusName(s models.Status) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "STATUS_"))
}

func typeName(t models.TypeCode) *string {
	if t == models.TypeCode_UNKNOWN {
		return nil
	}
	return unlessZero(strings.ToLower(t.String()))
}

// timestamp is a time in RFC 3339, with microseconds.
type timestamp time.Time

const timeFormat = "2006-01-02T15:04:05.000000Z07:00"

func timeOf(t *timestamppb.Timestamp) timestamp { return timestamp(t.AsTime()) }

// MarshalJSON implements json.Marshaler.
func (t timestamp) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Time(t).Format(timeFormat))
}

// seconds is a float, also where it is whole.
type seconds float64

// MarshalJSON implements json.Marshaler.
func (s seconds) MarshalJSON() ([]byte, error) {
	exact := math.Round(float64(s)*1e6) / 1e6 // a sum of microseconds may be off by a trifle
	if exact == math.Trunc(exact) {
		return strconv.AppendFloat(nil, exact, 'f', 1, 64), nil
	}
	return json.Marshal(exact)
}

// pointer returns the duration, nil if there is none.
func (s *seconds) pointer() *time.Duration {
	if s == nil {
		return nil
	}
	d := ofSeconds(float64(*s))
	return &d
}
