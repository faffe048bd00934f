package history

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/locket-service/locket/claim"
)

// Forever is the return of an operation that was never answered.
const Forever = math.MaxInt64

// Input is one request, or an expiry that the server decides on alone.
type Input struct {
	Request

	call, end claim.Time // of the operation, rounded outwards
}

// Output is the answer that the client saw. Fields that are zero were not shown. An answer
// that shows an active claim, or a claim's version, always shows the token too if there is
// one.
type Output struct {
	// Unknown: there was no answer. The request may have been carried out or not.
	Unknown bool
	// Refused is why the request was refused, 0 when it was not.
	Refused Refusal
	// None: the session neither holds the resource nor waits for it.
	None bool
	// Status, Token and Version are those of the claim that the request is about. In a
	// collision Token is that of the holder.
	Status  claim.Status
	Token   uint64
	Version uint64
	// Holder is the owner of the holder in a collision, "" for shared holders.
	Holder string
}

// Refusal is why a request was refused.
type Refusal uint8

// The refusals of package claim.
const (
	// NotFound: there is no such claim or lock.
	NotFound Refusal = iota + 1
	// IDTaken: the id names a claim that another request made.
	IDTaken
	// Contention: the claim still waits.
	Contention
	// Collision: somebody else holds the resource.
	Collision
	// Transition: the claim's status does not allow the change.
	Transition
	// SessionEnded: there is no such session any more.
	SessionEnded
)

func (r Refusal) String() string {
	switch r {
	case 0:
		return "accepted"
	case NotFound:
		return "not found"
	case IDTaken:
		return "id taken"
	case Contention:
		return "contention"
	case Collision:
		return "collision"
	case Transition:
		return "transition"
	case SessionEnded:
		return "session ended"
	default:
		return fmt.Sprintf("refusal %d", uint8(r))
	}
}

// Operation returns a request with its answer as porcupine wants it. Call and end are
// nanoseconds on one clock: when the request was first sent, and when it was answered, or
// Forever.
func Operation(call, end int64, request Request, out Output) porcupine.Operation {
	in := Input{Request: request, call: claim.Time(call / int64(time.Microsecond)), end: math.MaxInt64}
	if end != Forever {
		in.end = claim.Time((end + int64(time.Microsecond) - 1) / int64(time.Microsecond))
	}
	return porcupine.Operation{Call: call, Return: end, Input: in, Output: out}
}

// describe shows an operation in one line.
func describe(in Input, out Output) string {
	request := fmt.Sprintf("%s %T%+v", in.Resource, in.command, in.command)
	switch {
	case in.Session != "":
		request = fmt.Sprintf("%s session %s: %s", in.Resource, in.Session, in.special)
	case in.command == nil:
		request = fmt.Sprintf("%s %s %s", in.Resource, in.special, in.ID)
	}
	if out.Unknown {
		return request + " -> not answered"
	}
	return fmt.Sprintf("%s -> %v %+v", request, out.Refused, out)
}
