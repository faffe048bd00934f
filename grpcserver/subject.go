package grpcserver

import (
	"cmp"
	"log/slog"

	"github.com/locket-service/locket/models"
)

// subject has the resource, the owner and the claim of a unary call, as far as its messages name them.
type subject struct{ resource, owner, claim string }

// add adds the names in a request or a response; it replaces none.
func (s *subject) add(message any) {
	said := subject{}
	switch m := message.(type) {
	case interface{ GetResource() *models.Resource }: // the RPCs of locks
		said = subject{resource: m.GetResource().GetKey(), owner: m.GetResource().GetOwner()}
	case *models.FetchRequest:
		said.resource = m.GetKey()
	case interface {
		GetResource() string
		GetOwner() string
		GetId() string
	}:
		said = subject{m.GetResource(), m.GetOwner(), m.GetId()}
	case interface {
		GetResource() string
		GetOwner() string
	}:
		said = subject{resource: m.GetResource(), owner: m.GetOwner()}
	case interface{ GetResource() string }:
		said.resource = m.GetResource()
	case *models.GetClaimRequest, *models.UpdateClaimRequest, *models.AwaitClaimRequest, *models.EndClaimRequest:
		said.claim = m.(interface{ GetId() string }).GetId()
	}
	s.resource, s.owner, s.claim = cmp.Or(s.resource, said.resource), cmp.Or(s.owner, said.owner), cmp.Or(s.claim, said.claim)
}

// maxNamed is how many bytes of a name are logged: the maximum length of a valid one.
const maxNamed = 1024

func (s *subject) attrs() (attrs []slog.Attr) {
	for _, a := range []struct{ name, value string }{{"resource", s.resource}, {"owner", s.owner}, {"claim", s.claim}} {
		if a.value != "" {
			attrs = append(attrs, slog.String(a.name, a.value[:min(len(a.value), maxNamed)])) // one that is too long may be in a refused request
		}
	}
	return attrs
}
