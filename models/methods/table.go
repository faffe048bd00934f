package methods

import "github.com/locket-service/locket/models"

const (
	read       = models.Right_RIGHT_READ
	hold       = models.Right_RIGHT_HOLD
	revoke     = models.Right_RIGHT_REVOKE
	administer = models.Right_RIGHT_ADMINISTER
)

var table = map[string]Method{
	// A repeated Lock renews the lock that an earlier attempt acquired for the same owner. The committer can tell a
	// renewal, which is accepted under overload, from a new lock.
	models.Locket_Lock_FullMethodName: {
		Access: ByName, Rights: rights(hold), Resource: named(func(m *models.LockRequest) string { return m.GetResource().GetKey() }),
		Changes: true, Keeps: true, Repeatable: true,
	},
	// The transaction decides whether the lock is the caller's own. Without a token, a repeated Release may release a
	// later grant of the same owner.
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
	// A repeated UpdateClaim or EndClaim leaves the claim as the first attempt did.
	models.Locket_UpdateClaim_FullMethodName: {Access: ByClaim, Changes: true, Keeps: true, Repeatable: true},
	models.Locket_EndClaim_FullMethodName:    {Access: ByClaim, Changes: true, Keeps: true, Repeatable: true},
	// Its timeout restarts with each attempt. Over REST, an operation on one claim may wait too.
	models.Locket_AwaitClaim_FullMethodName: {Access: ByClaim, Lasts: Wait, Repeatable: true},
	models.Locket_GetQueue_FullMethodName: {
		Access: ByName, Rights: rights(read), Resource: named((*models.GetQueueRequest).GetResource), Repeatable: true,
	},
	models.Locket_ListResources_FullMethodName: {Access: Filtered, Repeatable: true},

	// A stream of commands: package lock resumes it, and repeats unanswered commands. Messages other than LockCommand
	// are about claims that the session already has.
	models.Locket_Session_FullMethodName: {
		Access: ByName, Rights: rights(hold), Resource: func(message any) (string, bool) {
			lock := message.(*models.SessionRequest).GetLock()
			return lock.GetResource(), lock != nil
		},
		Changes: true, Lasts: Session,
	},
	models.Locket_ListSessions_FullMethodName: {Access: Filtered, Repeatable: true},
	models.Locket_GetSession_FullMethodName:   {Access: Filtered, Repeatable: true},
	// A repeated EndSession finds no session if an earlier attempt has ended it.
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

// named is the Resource of methods all of whose messages need a right on the resource that they name.
func named[T any](name func(T) string) func(any) (string, bool) {
	return func(message any) (string, bool) { return name(message.(T)), true }
}
