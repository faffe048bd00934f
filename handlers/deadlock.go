package handlers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
)

// maxDeadlock limits the size of the members in an error: errors are in the trailer of an answer.
const maxDeadlock = 3 << 10

// deadlock returns the error of a claim that was aborted to end a deadlock, nil for any other claim. It has the members that
// the caller may see, and that can be read in time.
func (h *handler) deadlock(ctx context.Context, s claim.Status, reason string) error {
	ids := claim.Deadlock(s, reason)
	if ids == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	var members []models.DeadlockMember
	text := []byte("[]")
	for _, id := range ids {
		m, _, _, err := h.Store.Get(ctx, id, 0)
		if err != nil {
			continue
		}
		more := append(members, models.DeadlockMember{Owner: m.Owner, Session: m.Session, Claim: m.ID, Resource: m.Resource}) //nolint:gocritic // kept if it fits
		encoded, err := json.Marshal(more)
		if err != nil || len(encoded) > maxDeadlock {
			break
		}
		members, text = more, encoded
	}
	return withInfo(status.New(codes.Aborted, describe(members)), models.ReasonDeadlock, map[string]string{models.DeadlockKey: string(text)})
}

func describe(members []models.DeadlockMember) string {
	const most = 5
	text := "the claim was aborted to end a deadlock of owners that waited for each other"
	for i, m := range members[:min(most, len(members))] {
		separator := ", "
		if i == 0 {
			separator = ": "
		}
		text += fmt.Sprintf("%s%s waited for %s", separator, brief(cmp.Or(m.Owner, m.Session)), brief(m.Resource))
	}
	if more := len(members) - most; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

// brief quotes a name, which may be long.
func brief(name string) string {
	const most = 100
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "…"
	}
	return strconv.Quote(name)
}
