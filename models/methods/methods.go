// Package methods has the table of the properties of each RPC: the rights that it needs, whether it changes something,
// how long it lasts, whether it may be retried. The guards, the limits, the audit log and the clients' configuration
// use it. An RPC that is not in the table is refused, and fails a test.
package methods

import "github.com/locket-service/locket/models"

// Access is where a call is authorized.
type Access int

const (
	// ByName: before the handler, by one of the Rights on the resource that a message names.
	ByName Access = iota + 1
	// ByClaim: when the claim has been read, since the message has only its id. A claim that the caller may not see is
	// not found.
	ByClaim
	// Filtered: the answer contains only what the caller may see. If the message names a resource, the caller may also
	// need one of the Rights on it.
	Filtered
	// Everything: before the handler, by one of the Rights on all resources.
	Everything
	// Anybody: every authenticated caller may call it.
	Anybody
)

// Lasting is how long a call may last.
type Lasting int

const (
	// Short is a call that does not wait. It counts against the limit of concurrent requests.
	Short Lasting = iota
	// Wait, Watch and Session last as long as their callers like. Their handlers have their own limits, and identities
	// have a quota of each.
	Wait
	Watch
	Session
)

// Method has the properties of an RPC.
type Method struct {
	Access Access
	// The caller needs one of the Rights.
	Rights []models.Right
	// Resource returns the resource that a message names, and whether the message needs a right on it. It is nil if no
	// message does.
	Resource func(message any) (name string, needs bool)
	// Changes reports whether the RPC changes something. If so, the audit log has a line for each call, or for each
	// command of a stream.
	Changes bool
	// Keeps reports whether callers use it to keep or to release what they hold: then it is accepted when other calls
	// are refused for overload.
	Keeps bool
	Lasts Lasting
	// Repeatable reports whether a client may retry it without knowing the outcome of the first attempt.
	Repeatable bool
}

const prefix = "/models.Locket/"

// Of returns the properties of an RPC, by its full name, like "/models.Locket/Lock", and whether it is one of the
// service.
func Of(fullMethod string) (m Method, known bool) {
	m, known = table[fullMethod]
	return m, known
}

// Repeatable returns the names of the RPCs that a client may retry, in the order of the service, streams last.
func Repeatable() (names []string) {
	for _, name := range Names() {
		if table[prefix+name].Repeatable {
			names = append(names, name)
		}
	}
	return names
}

// Names returns the names of all RPCs of the service, in its order, streams last.
func Names() (names []string) {
	for _, method := range models.Locket_ServiceDesc.Methods {
		names = append(names, method.MethodName)
	}
	for _, stream := range models.Locket_ServiceDesc.Streams {
		names = append(names, stream.StreamName)
	}
	return names
}
