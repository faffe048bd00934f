package auth_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
)

// open opens a session of a user, and returns a function that breaks its stream.
func (w *world) open(user, id string) (leave func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.as(user))
	w.stream(ctx, id)
	return cancel
}

// stream opens a session.
func (w *world) stream(ctx context.Context, id string) grpc.BidiStreamingClient[models.SessionRequest, models.SessionResponse] {
	w.t.Helper()
	stream, err := w.Session(ctx)
	must(w.t, err)
	must(w.t, stream.Send(&models.SessionRequest{Sequence: 1, Command: &models.SessionRequest_Open{Open: &models.OpenSession{Id: id, Secret: "0123456789abcdef", Ttl: 600}}}))
	_, err = stream.Recv()
	must(w.t, err)
	return stream
}

// A session hears which identity ended its claim, and why.
func TestSessionIsToldWhoEndsAClaim(t *testing.T) {
	const rules = `
rules:
  - {identity: "credential:boss", may: [read, revoke], resource_prefix: ""}
  - {everybody: true, may: [hold], resource_prefix: ""}
`
	w := start(t, rules, []string{"ann", "boss"})
	stream := w.stream(w.as("ann"), "session-of-ann-012345")
	must(t, stream.Send(&models.SessionRequest{Sequence: 2, Command: &models.SessionRequest_Lock{Lock: &models.LockCommand{Resource: "k"}}}))
	held, err := stream.Recv()
	must(t, err)
	_, err = w.UpdateClaim(w.as("boss"), &models.UpdateClaimRequest{Id: held.GetStatus().GetClaim(), Status: models.Status_STATUS_RELEASED, Reason: "maintenance"})
	must(t, err)
	event, err := stream.Recv()
	must(t, err)
	want := models.ClaimEndedError{Status: models.Status_STATUS_RELEASED, Reason: "maintenance", EndedBy: "credential:boss"}
	if got := models.ClaimEnded(event.GetStatus()); !errors.Is(got, want) {
		t.Errorf("it hears %v, not %v", got, want)
	}
}

// listSessions returns the ids of the sessions that a caller is shown, in pages of 2.
func listSessions(ctx context.Context, w *world) (ids []string, err error) {
	request := &models.ListSessionsRequest{Limit: proto.Uint32(2)}
	for {
		page, err := w.ListSessions(ctx, request)
		if err != nil {
			return nil, err
		}
		if len(page.GetSessions()) > 2 {
			return nil, fmt.Errorf("a page of %d", len(page.GetSessions()))
		}
		for _, s := range page.GetSessions() {
			ids = append(ids, s.GetId())
		}
		if request.PageToken = page.GetNextPageToken(); request.GetPageToken() == "" {
			return ids, nil
		}
	}
}

// A caller that may not administer is shown only its own sessions, in the order of their ids.
func TestOwnSessions(t *testing.T) {
	const rules = `
rules:
  - {identity: "credential:boss", may: [administer], resource_prefix: ""}
  - {identity: "credential:part", may: [administer], resource_prefix: "deploy/"}
  - {everybody: true, may: [hold], resource_prefix: ""}
`
	w := start(t, rules, []string{"ann", "bob", "none", "part", "boss"})
	own := make(map[string][]string)
	for i := range 9 {
		user := []string{"ann", "bob", "part"}[i%3]
		if i == 8 {
			user = "ann"
		}
		id := fmt.Sprintf("session-%02d-of-somebody", i)
		defer w.open(user, id)()
		own[user] = append(own[user], id)
		own["boss"] = append(own["boss"], id)
	}
	for _, user := range []string{"ann", "bob", "none", "part", "boss"} {
		got, err := listSessions(w.as(user), w)
		if err != nil || !slices.Equal(got, own[user]) {
			t.Errorf("%s sees %v, %v; want %v", user, got, err, own[user])
		}
	}
	for user, may := range map[string]bool{"bob": false, "none": false, "part": false, "ann": true, "boss": true} {
		request := &models.GetSessionRequest{Id: own["ann"][0]}
		if got, err := w.GetSession(w.as(user), request); may != (err == nil) || !may && status.Code(err) != codes.NotFound || may && got.GetId() != request.GetId() {
			t.Errorf("%s gets a session of ann: %v, %v", user, got, err)
		}
	}
	for user, code := range map[string]codes.Code{"bob": codes.NotFound, "part": codes.NotFound} {
		if _, err := w.EndSession(w.as(user), &models.EndSessionRequest{Id: own["ann"][0]}); status.Code(err) != code {
			t.Errorf("%s ends a session of ann: %v", user, err)
		}
	}
	for user, id := range map[string]string{"ann": own["ann"][0], "boss": own["ann"][1]} {
		if _, err := w.EndSession(w.as(user), &models.EndSessionRequest{Id: id}); err != nil {
			t.Errorf("%s ends a session of ann: %v", user, err)
		}
	}
	if left, err := listSessions(w.as("ann"), w); err != nil || !slices.Equal(left, own["ann"][2:]) {
		t.Errorf("ann has %v, %v; want %v", left, err, own["ann"][2:])
	}
	_, err := w.ResetSessions(w.as("ann"), &models.ResetSessionsRequest{Keep: own["ann"]})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("reset: %v", err)
	}
}
