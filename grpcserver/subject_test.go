package grpcserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/locket-service/locket/models"
)

// The subject of a call comes from its request and its answer together.
func TestSubject(t *testing.T) {
	t.Parallel()
	lock := &models.Resource{Key: "r", Owner: "o"}
	for _, test := range []struct {
		request, response any
		want              string
	}{
		{&models.LockRequest{Resource: lock}, &models.LockResponse{}, "[resource=r owner=o]"},
		{&models.ReleaseRequest{Resource: lock}, nil, "[resource=r owner=o]"},
		{&models.FetchRequest{Key: "r"}, &models.FetchResponse{Resource: lock}, "[resource=r owner=o]"},
		{&models.CreateClaimRequest{Resource: "r", Owner: "o"}, &models.Claim{Id: "c", Resource: "r", Owner: "o"}, "[resource=r owner=o claim=c]"},
		{&models.GetClaimRequest{Id: "c"}, nil, "[claim=c]"},
		{&models.EndClaimRequest{Id: "c"}, &models.Claim{Id: "c", Resource: "r", Owner: "o"}, "[resource=r owner=o claim=c]"},
		{&models.AwaitClaimRequest{Id: "c"}, (*models.Claim)(nil), "[claim=c]"},
		{&models.GetQueueRequest{Resource: "r"}, &models.Queue{Resource: "r"}, "[resource=r]"},
		{&models.GetQueueRequest{Resource: strings.Repeat("r", 1<<20)}, nil, "[resource=" + strings.Repeat("r", 1024) + "]"},
		{&models.ListSessionsRequest{}, &models.ListSessionsResponse{}, "[]"},
	} {
		var s subject
		s.add(test.request)
		s.add(test.response)
		if got := fmt.Sprint(s.attrs()); got != test.want {
			t.Errorf("%T: %s, want %s", test.request, got, test.want)
		}
	}
}
