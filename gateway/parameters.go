package gateway

import (
	"encoding/json"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

// The parameters of the requests: a field is nil when its parameter is not given. Their
// limits are those of the service; the tags describe them in the OpenAPI document.

// createBody is the body of POST /v1/claims/ (seed 4), and what Locket adds to it.
type createBody struct {
	Resource *string        `json:"resource" doc:"The name of what is claimed." required:"true" minLength:"1" maxLength:"1024"`
	TTL      *float64       `json:"ttl" doc:"How many seconds the claim is held without being renewed, from the moment that it is active." required:"true" minimum:"0"`
	UserData *jsonview.JSON `json:"user_data" doc:"Any JSON, up to 64 KiB."`
	Owner    *string        `json:"owner" doc:"Who claims." maxLength:"1024"`
	Mode     *jsonview.Mode `json:"mode" doc:"With whom the claim may share the resource; exclusive when it is not given."`
	ID       *claimID       `json:"id" doc:"A name for the claim, which makes the request safe to repeat; the header Idempotency-Key is another way to give it." minLength:"1" maxLength:"128"`
	Type     *jsonview.Type `json:"type" doc:"What the claim is for; lock when it is not given."`
	Value    *string        `json:"value" doc:"Text that the lists of locks and presences show, up to 64 KiB." maxLength:"65536"`
}

func (b *createBody) message() proto.Message {
	return &models.CreateClaimRequest{
		Resource: given(b.Resource), Ttl: b.TTL, UserData: (*string)(b.UserData), Owner: given(b.Owner),
		Mode: models.Mode(given(b.Mode)), Id: string(given(b.ID)), TypeCode: models.TypeCode(given(b.Type)), Value: given(b.Value),
	}
}

// updateBody is the body of PATCH and PUT /v1/claims/ID/ (seed 4).
type updateBody struct {
	TTL    *float64   `json:"ttl" doc:"Renew: the claim expires so many seconds from now." minimum:"0"`
	Status *newStatus `json:"status" doc:"active, or the final status to move to."`
	Reason *string    `json:"reason" doc:"Why, with a final status." maxLength:"1024"`
}

func (b *updateBody) message() proto.Message {
	return &models.UpdateClaimRequest{Ttl: b.TTL, Status: models.Status(given(b.Status)), Reason: given(b.Reason)}
}

// listQuery is the query of GET /v1/claims/ (seed 4), and what Locket adds to it.
type listQuery struct {
	Resource               *string          `json:"resource" doc:"The claims of this resource."`
	Owner                  *string          `json:"owner" doc:"The claims of this owner."`
	Status                 *jsonview.Status `json:"status" doc:"The claims that stand so."`
	Mode                   *jsonview.Mode   `json:"mode" doc:"The claims of this mode."`
	MinimumActiveDuration  *float64         `json:"minimum_active_duration" doc:"Seconds."`
	MaximumActiveDuration  *float64         `json:"maximum_active_duration" doc:"Seconds."`
	MinimumWaitingDuration *float64         `json:"minimum_waiting_duration" doc:"Seconds."`
	MaximumWaitingDuration *float64         `json:"maximum_waiting_duration" doc:"Seconds."`
	MinimumTTL             *float64         `json:"minimum_ttl" doc:"Seconds left."`
	MaximumTTL             *float64         `json:"maximum_ttl" doc:"Seconds left."`
	MinimumCreated         *time.Time       `json:"minimum_created" doc:"The claims that were made then or later."`
	MaximumCreated         *time.Time       `json:"maximum_created" doc:"The claims that were made then or earlier."`
	Limit                  *uint32          `json:"limit" doc:"How many claims to return; 10 when it is not given." minimum:"1" maximum:"1000"`
	Offset                 *uint32          `json:"offset" doc:"How many claims to leave out first. For long lists follow the header Link instead." maximum:"1048576"`
	PageToken              *string          `json:"page_token" doc:"From the header Link of the page before."`
}

func (q *listQuery) message() proto.Message {
	return &models.ListClaimsRequest{
		Resource: q.Resource, Owner: q.Owner, Status: models.Status(given(q.Status)), Mode: (*models.Mode)(q.Mode),
		MinimumActiveDuration: q.MinimumActiveDuration, MaximumActiveDuration: q.MaximumActiveDuration,
		MinimumWaitingDuration: q.MinimumWaitingDuration, MaximumWaitingDuration: q.MaximumWaitingDuration,
		MinimumTtl: q.MinimumTTL, MaximumTtl: q.MaximumTTL,
		MinimumCreated: timestampOf(q.MinimumCreated), MaximumCreated: timestampOf(q.MaximumCreated),
		Limit: q.Limit, Offset: given(q.Offset), PageToken: given(q.PageToken),
	}
}

// endQuery is the query of DELETE /v1/claims/ID/.
type endQuery struct {
	Reason *string `json:"reason" doc:"Why; the claim keeps it." maxLength:"1024"`
}

func (q *endQuery) message() proto.Message { return &models.EndClaimRequest{Reason: given(q.Reason)} }

// queueQuery is the query of GET /v1/resources/NAME/.
type queueQuery struct {
	Limit *uint32 `json:"limit" doc:"How many of the waiters to return; 100 when it is not given." minimum:"1" maximum:"1000"`
}

func (q *queueQuery) message() proto.Message { return &models.GetQueueRequest{Limit: q.Limit} }

// given returns what a pointer points to, or the zero value.
func given[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

func timestampOf(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(*t)
}

// claimID is a name for a claim. An empty one, which the service takes for none, is refused.
type claimID string

// UnmarshalJSON implements json.Unmarshaler.
func (id *claimID) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, (*string)(id)); err != nil {
		return err
	}
	if *id == "" {
		return errors.New("an empty id")
	}
	return nil
}
