package guard

import (
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/locket-service/locket/auth"
	"github.com/locket-service/locket/models"
)

// Kind is where it is decided whether a call is allowed.
type Kind int

const (
	// ByName: here, by the resources that a message names.
	ByName Kind = iota + 1
	// ByClaim: where the claim is known, since the message names a claim's id only. A claim that
	// the caller may not see is not found.
	ByClaim
	// Filtered: the answer shows what the caller may see.
	Filtered
	// Anybody: every caller who was let in.
	Anybody
)

// Need is what a method needs.
type Need struct {
	Kind Kind
	// Rights are those of which one is needed; for ByName.
	Rights []auth.Right
	check  func(*auth.Caller, any) error
}

// MetricsPage is the name under which the page of the metrics passes the chain.
const MetricsPage = "/pages/Metrics"

// Needs returns what each method needs, by its full name. Methods that are not in it are refused.
func Needs() map[string]Need { return needs }

var needs = map[string]Need{
	models.Locket_Lock_FullMethodName: named(func(m *models.LockRequest) string { return m.GetResource().GetKey() }, auth.Hold),
	// Whether the lock is the caller's own is decided where it is known.
	models.Locket_Release_FullMethodName:     named(func(m *models.ReleaseRequest) string { return m.GetResource().GetKey() }, auth.Hold, auth.Revoke),
	models.Locket_Fetch_FullMethodName:       named((*models.FetchRequest).GetKey, auth.Read),
	models.Locket_FetchAll_FullMethodName:    free(Filtered),
	models.Locket_CreateClaim_FullMethodName: named((*models.CreateClaimRequest).GetResource, auth.Hold),
	models.Locket_GetClaim_FullMethodName:    free(ByClaim),
	models.Locket_ListClaims_FullMethodName:  free(Filtered),
	models.Locket_UpdateClaim_FullMethodName: free(ByClaim),
	models.Locket_AwaitClaim_FullMethodName:  free(ByClaim),
	models.Locket_EndClaim_FullMethodName:    free(ByClaim),
	models.Locket_GetQueue_FullMethodName:    named((*models.GetQueueRequest).GetResource, auth.Read),

	models.Locket_ListResources_FullMethodName: free(Filtered),

	models.Locket_Session_FullMethodName:       session(),
	models.Locket_GetSession_FullMethodName:    free(Filtered),
	models.Locket_EndSession_FullMethodName:    free(Filtered),
	models.Locket_ListSessions_FullMethodName:  free(Filtered),
	models.Locket_ResetSessions_FullMethodName: everything(auth.Administer),
	models.Locket_Watch_FullMethodName:         watch(),
	models.Locket_GetWaits_FullMethodName:      free(Filtered),

	models.Locket_GetStatus_FullMethodName: everything(auth.Administer),

	MetricsPage: everything(auth.Administer),

	models.Locket_WhoAmI_FullMethodName: free(Anybody),
	models.Locket_CanI_FullMethodName:   free(Anybody),

	grpc_reflection_v1.ServerReflection_ServerReflectionInfo_FullMethodName:      free(Anybody),
	grpc_reflection_v1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: free(Anybody),
}

// free is a need that is not decided here.
func free(kind Kind) Need {
	return Need{Kind: kind, check: func(*auth.Caller, any) error { return nil }}
}

// named needs one of the rights on the resource that a message names.
func named[T any](name func(T) string, rights ...auth.Right) Need {
	return Need{Kind: ByName, Rights: rights, check: func(c *auth.Caller, message any) error {
		return c.NeedOne(rights, name(message.(T)))
	}}
}

// everything needs a right on all resources.
func everything(right auth.Right) Need {
	return Need{Kind: ByName, Rights: []auth.Right{right}, check: func(c *auth.Caller, _ any) error { return c.NeedAll(right, "") }}
}

// session needs the right to hold, for each message that claims. The other messages are about
// what the session has already.
func session() Need {
	return Need{Kind: ByName, Rights: []auth.Right{auth.Hold}, check: func(c *auth.Caller, message any) error {
		if lock := message.(*models.SessionRequest).GetLock(); lock != nil {
			return c.Need(auth.Hold, lock.GetResource())
		}
		return nil
	}}
}

// watch needs the right to read the resource that is watched. A watch of several shows what the caller
// may see.
func watch() Need {
	return Need{Kind: Filtered, check: func(c *auth.Caller, message any) error {
		if request := message.(*models.WatchRequest); request.Resource != nil {
			return c.Need(auth.Read, request.GetResource())
		}
		return nil
	}}
}
