// Package methods has the table of what each RPC is: what a caller needs for it, whether it changes something, whether it
// lasts, whether it may be sent again. The guards, the limits, the audit log and the clients' configuration read it.
// An RPC without a line is refused, and fails a test.
package methods

import "github.com/locket-service/locket/models"

// Access is where it is decided whether a call is allowed.
type Access int

const (
	// ByName: before the handler, by one of the Rights on the resource that a message names.
	ByName Access = iota + 1
	// ByClaim: where the claim is known, since the message names a claim's id only. A claim that
	// the caller may not see is not found.
	ByClaim
	// Filtered: the answer shows what the caller may see. Of a resource that the message names it needs one of
	// the Rights too, if there are any.
	Filtered
	// Everything: before the handler, by one of the Rights on all resources.
	Everything
	// Anybody: every caller who was let in.
	Anybody
)

// Lasting is for how long a call may last.
type Lasting int

const (
	// Short is a call that is carried out at once. It is one of the requests under way, which have a limit.
	Short Lasting = iota
	// Wait, Watch and Session last as long as their callers like. What implements them has limits of its own, and
	// identities have a quota of each.
	Wait
	Watch
	Session
)

// Method is what an RPC is.
type Method struct {
	Access Access
	// Rights are those of which one is needed.
	Rights []models.Right
	// Resource returns the resource that a message names, and whether the message needs a right on it. It is nil where
	// no message does.
	Resource func(message any) (name string, needs bool)
	// Changes is whether it changes something: then the audit log has a line for each call, or for each command of a
	// stream.
	Changes bool
	// Keeps is whether callers keep by it what they hold, or give it up: it finds room when other calls do not.
	Keeps bool
	Lasts Lasting
	// Repeatable is whether a client may send it again by itself, without knowing what came of the first attempt.
	Repeatable bool
}

const prefix = "/models.Locket/"

// Of returns what an RPC is, by its full name, like "/models.Locket/Lock", and whether it is one of the service.
func Of(fullMethod string) (m Method, known bool) {
	m, known = table[fullMethod]
	return m, known
}

// Repeatable returns the names of the RPCs that a client may send again by itself, in the order of the service, streams last.
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
