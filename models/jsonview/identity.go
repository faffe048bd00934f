package jsonview

import "github.com/locket-service/locket/models"

// Identity is who a caller was authenticated as.
type Identity struct {
	Name           *string  `json:"name" doc:"The caller's name; null for a caller without credentials, where that is allowed."`
	Groups         []string `json:"groups" doc:"The caller's groups."`
	Authentication bool     `json:"authentication" doc:"Whether the server authenticates its callers. Without authentication everybody may do everything."`
}

// OfIdentity returns the view of an identity.
func OfIdentity(i *models.Identity) Identity {
	return Identity{unlessZero(i.GetName()), append([]string{}, i.GetGroups()...), i.GetAuthentication()}
}

// Permission says whether the caller has a right on a resource.
type Permission struct {
	Allowed bool    `json:"allowed" doc:"Whether the caller has the right."`
	Line    *uint32 `json:"line" doc:"The line of the deciding rule in the server's rules file; null if no rule of a file decides."`
}

// OfPermission returns the view of an answer to CanI.
func OfPermission(r *models.CanIResponse) Permission {
	return Permission{r.GetAllowed(), unlessZero(r.GetLine())}
}
