package guard

import (
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/methods"
)

// MetricsPage is the name of the metrics page in the chain.
const MetricsPage = "/pages/Metrics"

// others pass the chain and are no RPCs of the service.
var others = map[string]methods.Method{
	MetricsPage: {Access: methods.Everything, Rights: []models.Right{models.Right_RIGHT_ADMINISTER}},

	grpc_reflection_v1.ServerReflection_ServerReflectionInfo_FullMethodName:      {Access: methods.Anybody},
	grpc_reflection_v1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: {Access: methods.Anybody},
}

// methodOf returns a method's line in the table, and whether there is one.
func methodOf(fullMethod string) (m methods.Method, known bool) {
	if m, known = methods.Of(fullMethod); !known {
		m, known = others[fullMethod]
	}
	return m, known
}

// rights are the rights of package access, by their numbers on the wire.
var rights = map[models.Right]access.Right{
	models.Right_RIGHT_READ: access.Read, models.Right_RIGHT_HOLD: access.Hold,
	models.Right_RIGHT_REVOKE: access.Revoke, models.Right_RIGHT_ADMINISTER: access.Administer,
}

// needOf returns a check of the caller's rights for each message of a method, as far as they are known before
// the handler.
func needOf(m methods.Method) func(caller access.Caller, message any) error {
	needed := make([]access.Right, len(m.Rights))
	for i, right := range m.Rights {
		needed[i] = rights[right]
	}
	switch {
	case m.Access == methods.Everything:
		return func(caller access.Caller, _ any) error { return caller.NeedAll(needed[0], "") }
	case m.Resource == nil:
		return func(access.Caller, any) error { return nil }
	}
	return func(caller access.Caller, message any) error {
		name, needs := m.Resource(message)
		if !needs {
			return nil
		}
		return caller.NeedOne(needed, name)
	}
}
