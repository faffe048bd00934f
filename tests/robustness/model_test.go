package robustness_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/locket-service/locket/models"
)

// What a request did, as a client saw it. A request that was sent again until it was
// answered is one operation, from its first attempt to its answer.
type opKind uint8

const (
	opLock   opKind = iota // Lock: granted or refused
	opCreate               // CreateClaim
	opRead                 // any answer that shows a live claim
	opEnd                  // Release, or UpdateClaim to a final status
	opExpire               // no request: the server ends an abandoned claim
)

type opInput struct {
	kind opKind
	key  string
	id   string // of the claim, or the owner of a lock; each is used once
}

type opOutput struct {
	status models.Status // WAITING, ACTIVE, or 0 when it is not known
	token  uint64
	// version is that of the change that this very request made, when the answer shows it.
	// It is also what keeps the search for an order short.
	version uint64
}

// queue is one key of the model: a second, short definition of package claim's rules, for
// exclusive claims.
type queue struct {
	holder  string
	token   uint64 // of the holder; 0 until somebody has seen it
	above   uint64 // what the token of the holder must be above
	version uint64 // of the last change that showed one
	line    string // the ids of those that wait, each followed by a space
}

var queueModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := make(map[string][]porcupine.Operation)
		for _, op := range history {
			key := op.Input.(opInput).key
			byKey[key] = append(byKey[key], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return queue{} },
	Step: func(state, input, output any) (bool, any) {
		q := state.(queue)
		ok := q.step(input.(opInput), output.(opOutput))
		return ok, q
	},
	DescribeOperation: func(input, output any) string {
		return fmt.Sprintf("%+v -> %+v", input, output)
	},
}

// step reports whether the answer is one that the rules allow.
func (q *queue) step(in opInput, out opOutput) bool {
	if out.version != 0 {
		if out.version <= q.version {
			return false
		}
		q.version = out.version
	}
	switch in.kind {
	case opLock:
		return q.lock(in.id, out)
	case opCreate:
		waits := q.holder != ""
		q.line += in.id + " "
		q.grant()
		return out.status == 0 || (waits == (out.status == waiting) && (waits || q.saw(out.token)))
	case opRead:
		if out.status == waiting {
			return strings.Contains(" "+q.line, " "+in.id+" ")
		}
		return q.holder == in.id && q.saw(out.token)
	case opEnd:
		return q.end(in.id)
	case opExpire:
		return q.holder == in.id && q.end(in.id)
	}
	return false
}

func (q *queue) lock(id string, out opOutput) bool {
	if out.status != active {
		return q.holder != "" && q.holder != id
	}
	if q.holder == "" {
		q.hold(id)
	}
	return q.holder == id && q.saw(out.token)
}

func (q *queue) end(id string) bool {
	if q.holder == id {
		q.above = max(q.above, q.token)
		q.holder, q.token = "", 0
		q.grant()
		return true
	}
	before := q.line
	q.line = strings.Replace(" "+q.line, " "+id+" ", " ", 1)[1:]
	return q.line != before
}

func (q *queue) grant() {
	if head, rest, _ := strings.Cut(q.line, " "); q.holder == "" && head != "" {
		q.line = rest
		q.hold(head)
	}
}

func (q *queue) hold(id string) {
	q.holder, q.token = id, 0
	q.above = max(q.above, q.version)
}

// saw reports whether the holder can have this token.
func (q *queue) saw(token uint64) bool {
	if q.token == 0 && token > q.above {
		q.token, q.version = token, max(q.version, token)
	}
	return q.token == token
}

// checkHistory fails the test when no order of the operations explains their answers.
func checkHistory(t *testing.T, history []porcupine.Operation) {
	t.Helper()
	start := time.Now()
	result := porcupine.CheckOperationsTimeout(queueModel, history, time.Minute)
	t.Logf("porcupine: %s, %d operations in %v", result, len(history), time.Since(start).Round(time.Millisecond))
	if result == porcupine.Ok {
		return
	}
	t.Errorf("the history is not linearizable (%s)", result)
	for _, part := range queueModel.Partition(history) {
		if porcupine.CheckOperationsTimeout(queueModel, part, 10*time.Second) == porcupine.Ok {
			continue
		}
		describeLongest(t, part)
		return
	}
}

// describeLongest shows where the longest explanation of a key's history ends.
func describeLongest(t *testing.T, part []porcupine.Operation) {
	t.Helper()
	slices.SortFunc(part, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	longest := 0
	for n := range part { // the shortest beginning that cannot be explained
		if porcupine.CheckOperationsTimeout(queueModel, part[:n+1], time.Second) == porcupine.Illegal {
			longest = n + 1
			break
		}
	}
	for _, op := range part[max(0, longest-25):longest] {
		t.Logf("  %10d..%10d us %+v -> %+v", op.Call/1000, op.Return/1000, op.Input, op.Output)
	}
}

const (
	active  = models.Status_STATUS_ACTIVE
	waiting = models.Status_STATUS_WAITING
)

// op is an operation for the tests of the model.
func op(call, end int64, kind opKind, id string, status models.Status, token uint64) porcupine.Operation {
	return porcupine.Operation{Call: call, Return: end, Input: opInput{kind, "k", id}, Output: opOutput{status: status, token: token}}
}

// The model must refuse what must not happen.
func TestModel(t *testing.T) {
	for name, test := range map[string]struct {
		history []porcupine.Operation
		want    bool
	}{
		"one after the other": {[]porcupine.Operation{
			op(1, 2, opLock, "a", active, 10), op(3, 4, opLock, "b", 0, 0), op(5, 6, opEnd, "a", 0, 0), op(7, 8, opLock, "b", active, 11),
		}, true},
		"two holders": {[]porcupine.Operation{
			op(1, 2, opLock, "a", active, 10), op(3, 4, opLock, "b", active, 11), op(5, 6, opEnd, "a", 0, 0),
		}, false},
		"a grant that was lost": {[]porcupine.Operation{
			op(1, 2, opLock, "a", active, 10), op(3, 4, opRead, "a", waiting, 0),
		}, false},
		"a release that was lost": {[]porcupine.Operation{
			op(1, 2, opLock, "a", active, 10), op(3, 4, opEnd, "a", 0, 0), op(5, 6, opLock, "b", 0, 0),
		}, false},
		"a token that falls": {[]porcupine.Operation{
			op(1, 2, opLock, "a", active, 10), op(3, 4, opEnd, "a", 0, 0), op(5, 6, opLock, "b", active, 9),
		}, false},
		"a token that changes": {[]porcupine.Operation{
			op(1, 2, opLock, "a", active, 10), op(3, 4, opLock, "a", active, 11),
		}, false},
		"in turn": {[]porcupine.Operation{
			op(1, 2, opCreate, "a", active, 10), op(3, 4, opCreate, "b", waiting, 0), op(5, 6, opCreate, "c", waiting, 0),
			op(7, 8, opEnd, "a", 0, 0), op(9, 10, opRead, "b", active, 12), op(9, 10, opRead, "c", waiting, 0),
		}, true},
		"out of turn": {[]porcupine.Operation{
			op(1, 2, opCreate, "a", active, 10), op(3, 4, opCreate, "b", waiting, 0), op(5, 6, opCreate, "c", waiting, 0),
			op(7, 8, opEnd, "a", 0, 0), op(9, 10, opRead, "c", active, 12),
		}, false},
		"created at once": {[]porcupine.Operation{
			op(1, 2, opCreate, "a", active, 10), op(3, 6, opCreate, "b", waiting, 0), op(4, 7, opCreate, "c", waiting, 0),
			op(8, 9, opEnd, "a", 0, 0), op(10, 11, opRead, "c", active, 12),
		}, true},
		"free with a waiter": {[]porcupine.Operation{
			op(1, 2, opCreate, "a", active, 10), op(3, 4, opCreate, "b", waiting, 0), op(5, 6, opEnd, "a", 0, 0), op(7, 8, opLock, "c", active, 13),
		}, false},
		"expired": {[]porcupine.Operation{
			op(1, 2, opCreate, "a", active, 10), op(5, 9, opExpire, "a", 0, 0), op(6, 8, opLock, "b", active, 13),
		}, true},
		"expired too early": {[]porcupine.Operation{
			op(1, 2, opCreate, "a", active, 10), op(5, 9, opExpire, "a", 0, 0), op(3, 4, opLock, "b", active, 13),
		}, false},
	} {
		if got := porcupine.CheckOperations(queueModel, test.history); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}
