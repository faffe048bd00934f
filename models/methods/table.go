package methods

import "github.com/locket-service/locket/models"

const (
	read       = models.Right_RIGHT_READ
	hold       = models.Right_RIGHT_HOLD
	revoke     = models.Right_RIGHT_REVOKE
	administer = models.Right_RIGHT_ADMINISTER
)

var table = map[string]Method{
	// A repeated Lock renews what an attempt before it took for the same owner. The committer can tell a renewal, which
	// finds room, from a new lock.
	models.Locket_Lock_FullMethodName: {
		Access: ByName, Rights: rights(hold), Resource: named(func(m *models.LockRequest) string { return m.GetResource().GetKey() }),
		Changes: true, Keeps: true, Repeatable: true,
	},
	// Whether the lock is the caller's own is decided where it is known. Without a token, a repeated Release may release
	// a later grant, which the owner took meanwhile.
	models.Locket_Release_FullMethodName: {
		Access: ByName, Rights: rights(hold, revoke), Resource: named(func(m *models.ReleaseRequest) string { return m.GetResource().GetKey() }),
		Changes: true, Keeps: true,
	},
	models.Locket_Fetch_FullMethodName: {
		Access: ByName, Rights: rights(read), Resource: named((*models.FetchRequest).GetKey), Repeatable: true,
	},
	models.Locket_FetchAll_FullMethodName: {Access: Filtered, Repeatable: true},

	// A repeated CreateClaim without an id makes a second claim.
	models.Locket_CreateClaim_FullMethodName: {
		Access: ByName, Rights: rights(hold), Resource: named((*models.CreateClaimRequest).GetResource), Changes: true,
	},
	models.Locket_GetClaim_FullMethodName:   {Access: ByClaim, Repeatable: true},
	models.Locket_ListClaims_FullMethodName: {Access: Filtered, Repeatable: true},
	// UpdateClaim and EndClaim leave a claim as an attempt before them has left it.
	models.Locket_UpdateClaim_FullMethodName: {Access: ByClaim, Changes: true, Keeps: true, Repeatable: true},
	models.Locket_EndClaim_FullMethodName:    {Access: ByClaim, Changes: true, Keeps: true, Repeatable: true},
	// Its timeout begins anew with each attempt. Over REST any operation with one claim waits.
	models.Locket_AwaitClaim_FullMethodName: {Access: ByClaim, Lasts: Wait, Repeatable: true},
	models.Locket_GetQueue_FullMethodName: {
		Access: ByName, Rights: rights(read), Resource: named((*models.GetQueueRequest).GetResource), Repeatable: true,
	},
	models.Locket_ListResources_FullMethodName: {Access: Filtered, Repeatable: true},
	models.Locket_GetWaits_FullMethodName:      {Access: Filtered, Repeatable: true},

	// A stream of commands: package lock resumes it, and sends again what was not answered. The messages that do not claim
	// are about what the session has already.
	models.Locket_Session_FullMethodName: {
		Access: ByName, Rights: rights(hold), Resource: func(message any) (string, bool) {
			lock := message.(*models.SessionRequest).GetLock()
			return lock.GetResource(), lock != nil
		},
		Changes: true, Lasts: Session,
	},
	models.Locket_ListSessions_FullMethodName: {Access: Filtered, Repeatable: true},
	models.Locket_GetSession_FullMethodName:   {Access: Filtered, Repeatable: true},
	// A repeated EndSession finds no session when an attempt before it has ended it.
	models.Locket_EndSession_FullMethodName: {Access: Filtered, Changes: true, Keeps: true},
	// A repeated ResetSessions would also end the sessions that were opened since the first attempt.
	models.Locket_ResetSessions_FullMethodName: {Access: Everything, Rights: rights(administer), Changes: true},

	models.Locket_Watch_FullMethodName: {
		Access: Filtered, Rights: rights(read), Resource: func(message any) (string, bool) {
			request := message.(*models.WatchRequest)
			return request.GetResource(), request.Resource != nil
		},
		Lasts: Watch, Repeatable: true,
	},

	models.Locket_GetStatus_FullMethodName: {Access: Everything, Rights: rights(administer), Repeatable: true},
	models.Locket_WhoAmI_FullMethodName:    {Access: Anybody, Repeatable: true},
	models.Locket_CanI_FullMethodName:      {Access: Anybody, Repeatable: true},
}

func rights(rights ...models.Right) []models.Right { return rights }

// named is for messages each of which needs a right on the resource that it names.
func named[T any](name func(T) string) func(any) (string, bool) {
	return func(message any) (string, bool) { return name(message.(T)), true }
}
