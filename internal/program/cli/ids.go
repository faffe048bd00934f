package cli

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/models"
)

// clockMargins are the assumed differences between the clock that made an id and the database's, tried in this order.
var clockMargins = []time.Duration{10 * time.Second, time.Hour}

// wholeID returns the id that an argument means: an id, or the prefix of one id that a server or a client made.
func wholeID(ctx context.Context, c *connect.Connection, argument string) (string, error) {
	first, last, ok := ids.TimesOf(argument)
	if !ok || ids.IsClaim(argument) {
		return argument, nil
	}
	request, cancel := c.Request(ctx)
	_, err := c.GetClaim(request, &models.GetClaimRequest{Id: argument})
	if cancel(); status.Code(err) != codes.NotFound { // an id that a user chose
		return argument, nil //nolint:nilerr // the caller's request meets the same error
	}
	for _, margin := range clockMargins {
		claims, more, err := listClaims(ctx, c, &models.ListClaimsRequest{
			MinimumCreated: timestamppb.New(first.Add(-margin)), MaximumCreated: timestamppb.New(last.Add(margin)),
		}, maxSorted)
		switch {
		case err != nil:
			return "", err
		case more:
			return "", exit.Usagef("%q: too short: more than %d claims were made in the time that it covers; give more characters", argument, maxSorted)
		}
		if id, err := onlyWith(argument, claims.Names()); id != "" || err != nil {
			return id, err
		}
	}
	return argument, nil
}

// wholeSessions returns the ids of sessions that arguments mean: ids, or unique prefixes of them.
func wholeSessions(ctx context.Context, c *connect.Connection, arguments []string) (whole []string, err error) {
	if len(arguments) == 0 {
		return nil, nil
	}
	sessions, err := listSessions(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, argument := range arguments {
		id, err := onlyWith(argument, sessions.Names())
		if err != nil {
			return nil, err
		}
		if id == "" {
			id = argument
		}
		whole = append(whole, id)
	}
	return whole, nil
}

// onlyWith returns the id with a prefix, "" if there is none. It is an error if there are several, and none is the prefix itself.
func onlyWith(prefix string, list []string) (string, error) {
	var found []string
	for _, id := range list {
		if id == prefix {
			return id, nil
		}
		if prefix != "" && strings.HasPrefix(id, prefix) {
			found = append(found, id)
		}
	}
	switch len(found) {
	case 0:
		return "", nil
	case 1:
		return found[0], nil
	}
	const most = 5
	examples := strings.Join(found[:min(len(found), most)], ", ")
	return "", exit.Usagef("%q: the beginning of %d ids, such as %s; give more characters", prefix, len(found), examples)
}
