package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

// The parameters of the requests: a field is nil if its parameter is missing. The service checks their limits; the tags
// describe them in the OpenAPI document. A parameter sets the field of the message with its name, or with the name in its tag
// "field". The REST requirements are in docs/sources.md.

// createBody is the body of POST /v1/claims/, with more parameters than the REST requirements have.
type createBody struct {
	Resource      *string        `json:"resource" doc:"The name of the resource." required:"true" minLength:"1" maxLength:"1024"`
	TTL           *float64       `json:"ttl" doc:"For how many seconds the claim is held without renewal, from when it is active." required:"true" minimum:"0"`
	UserData      *jsonview.JSON `json:"user_data" doc:"Any JSON, up to 64 KiB and 1,000 levels deep."`
	Owner         *string        `json:"owner" doc:"The owner, as the client names itself." maxLength:"1024"`
	Mode          *jsonview.Mode `json:"mode" doc:"Whether the claim shares the resource; the default is exclusive."`
	ID            *claimID       `json:"id" doc:"A name for the claim, which makes the request safe to repeat; the header Idempotency-Key may give it instead." minLength:"1" maxLength:"128"`
	Type          *jsonview.Type `json:"type" field:"type_code" doc:"The purpose of the claim; the default is lock."`
	Value         *string        `json:"value" doc:"Text that the lists of locks and presences show, up to 64 KiB." maxLength:"65536"`
	WaitTTL       *float64       `json:"wait_ttl" doc:"How many seconds the claim may wait without anybody asking about it. After that it is aborted. The default is for ever." minimum:"1"`
	AllowDeadlock *bool          `json:"allow_deadlock" doc:"Whether to keep waiting in a deadlock (owners that wait for each other in a cycle). The default is false: the youngest claim of a deadlock is aborted."`
	NoWait        *bool          `json:"no_wait" doc:"Whether to refuse a claim that would have to wait, without storing it. The default is false."`
}

// updateBody is the body of PATCH and PUT /v1/claims/ID/ (REST requirements), with a reason.
type updateBody struct {
	TTL    *float64   `json:"ttl" doc:"Renew: the claim expires this many seconds from now." minimum:"0"`
	Status *newStatus `json:"status" doc:"active, or the new final status."`
	Reason *string    `json:"reason" doc:"Why the claim ends; with a final status only." maxLength:"1024"`
}

// listQuery is the query of GET /v1/claims/, with more filters than the REST requirements have.
type listQuery struct {
	Resource               *string         `json:"resource" doc:"Claims of this resource."`
	Prefix                 *string         `json:"prefix" doc:"Claims of resources whose names begin with this."`
	Owner                  *string         `json:"owner" doc:"Claims of this owner."`
	Status                 *statuses       `json:"status" doc:"Claims with one of these statuses, separated by commas."`
	Mode                   *jsonview.Mode  `json:"mode" doc:"Claims of this mode."`
	MinimumActiveDuration  *float64        `json:"minimum_active_duration" doc:"Seconds."`
	MaximumActiveDuration  *float64        `json:"maximum_active_duration" doc:"Seconds."`
	MinimumWaitingDuration *float64        `json:"minimum_waiting_duration" doc:"Seconds."`
	MaximumWaitingDuration *float64        `json:"maximum_waiting_duration" doc:"Seconds."`
	MinimumTTL             *float64        `json:"minimum_ttl" doc:"Seconds left."`
	MaximumTTL             *float64        `json:"maximum_ttl" doc:"Seconds left."`
	MinimumCreated         *time.Time      `json:"minimum_created" doc:"Claims created then or later."`
	MaximumCreated         *time.Time      `json:"maximum_created" doc:"Claims created then or earlier."`
	Order                  *jsonview.Order `json:"order" doc:"By the time of creation; the default is oldest first."`
	Limit                  *uint32         `json:"limit" doc:"How many claims to return; the default is 10." minimum:"1" maximum:"1000"`
	Offset                 *uint32         `json:"offset" doc:"How many claims to skip first. For long lists follow the header Link instead." maximum:"1048576"`
	PageToken              *string         `json:"page_token" doc:"From the header Link of the previous page."`
}

// endQuery is the query of DELETE /v1/claims/ID/.
type endQuery struct {
	Reason *string `json:"reason" doc:"Why the claim ends; stored with the claim." maxLength:"1024"`
}

// queueQuery is the query of GET /v1/resources/NAME/.
type queueQuery struct {
	Limit *uint32 `json:"limit" doc:"How many waiters to return; the default is 100." minimum:"1" maximum:"1000"`
}

// resourcesQuery is the query of GET /v1/resources/.
type resourcesQuery struct {
	Prefix    *string                 `json:"prefix" doc:"Resources whose names begin with this."`
	Delimiter *string                 `json:"delimiter" doc:"Names that contain it after the prefix come as one folder for each part before it; only in the order of names." maxLength:"1024"`
	Order     *jsonview.ResourceOrder `json:"order" doc:"The default is by name; contended: resources with the most waiting claims come first."`
	Limit     *uint32                 `json:"limit" doc:"How many to return; the default is 100." minimum:"1" maximum:"1000"`
	PageToken *string                 `json:"page_token" doc:"From the header Link of the previous page."`
}

// sessionsQuery is the query of GET /v1/sessions/.
type sessionsQuery struct {
	Limit     *uint32 `json:"limit" doc:"How many to return; the default is 100." minimum:"1" maximum:"1000"`
	PageToken *string `json:"page_token" doc:"From the header Link of the previous page."`
}

// heldQuery is the query of GET /v1/locks/ and GET /v1/presences/.
type heldQuery struct {
	Limit     *uint32 `json:"limit" doc:"How many to return; the default is 1,000." minimum:"1" maximum:"1000"`
	PageToken *string `json:"page_token" doc:"From the header Link of the previous page."`
}

// rightQuery is the query of GET /v1/permissions/NAME/.
type rightQuery struct {
	Right *jsonview.Right `json:"right" doc:"The right to check; required." required:"true"`
}

// claimID is the id of a claim. An empty one is an error, because the service would treat it as missing.
type claimID string

func (id *claimID) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, (*string)(id)); err != nil {
		return err
	}
	if *id == "" {
		return errors.New("an empty id")
	}
	return nil
}

// enum is a type with a fixed set of named values.
type enum interface{ Names() []string }

// statuses is a list of statuses, separated by commas.
type statuses []models.Status

// Names implements enum: the names of the items.
func (statuses) Names() []string { return jsonview.Status(0).Names() }

func (list *statuses) UnmarshalJSON(text []byte) error {
	var names string
	if err := json.Unmarshal(text, &names); err != nil {
		return err
	}
	for name := range strings.SplitSeq(names, ",") {
		var status jsonview.Status
		if err := status.UnmarshalText([]byte(name)); err != nil {
			return err
		}
		*list = append(*list, models.Status(status))
	}
	return nil
}

// newStatus is a status that a client may set.
type newStatus jsonview.Status

// newStatusNames are the statuses of the REST requirements.
var newStatusNames = []string{"aborted", "active", "released", "revoked", "withdrawn"}

// Names implements enum.
func (newStatus) Names() []string { return newStatusNames }

func (s *newStatus) UnmarshalJSON(text []byte) error {
	var name string
	if err := json.Unmarshal(text, &name); err != nil || !slices.Contains(newStatusNames, name) {
		return fmt.Errorf("must be one of %q, not %s", newStatusNames, text)
	}
	return (*jsonview.Status)(s).UnmarshalText([]byte(name))
}
