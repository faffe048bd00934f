package history

import (
	"fmt"
	"math"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

// Forever is the return of an operation that was never answered.
const Forever = math.MaxInt64

// Operation is a request and its answer. Call and Return are nanoseconds on one clock: when the
// request was first sent, and when it was answered, or Forever.
type Operation struct {
	Call, Return int64
	Request
	Output
}

// Output is the answer that the client saw. Fields that are zero were not shown. An answer that
// shows an active claim, or a claim's version, always shows the token too if there is one.
type Output struct {
	// Unknown: there was no answer. The request may have been carried out or not.
	Unknown bool
	// Refused is why the request was refused, 0 when it was not.
	Refused Refusal
	// None: the session neither holds the resource nor waits for it.
	None bool
	// Status, Token and Version belong to the claim of the request. In a
	// collision Token is the holder's.
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
	default:
		return fmt.Sprintf("refusal %d", uint8(r))
	}
}

// micros returns a moment of a history in the unit of the rules.
func micros(at int64) claim.Time { return claim.Time(at / int64(time.Microsecond)) }

// String shows an operation in one line.
func (op *Operation) String() string {
	end := fmt.Sprint(op.Return / 1000)
	if op.Return == Forever {
		end = "?"
	}
	what := fmt.Sprintf("%T%+v", op.command, op.command)
	if op.command == nil {
		what = fmt.Sprintf("%s %s%s", op.special, op.Session, op.ID)
	}
	answer := "not answered"
	if !op.Unknown {
		answer = fmt.Sprintf("%v %+v", op.Refused, op.Output)
	}
	return fmt.Sprintf("%10d..%s us %s %s -> %s", op.Call/1000, end, op.Resource, what, answer)
}
