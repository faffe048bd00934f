package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/locket-service/locket/tests/harness"
)

// The columns of matrix.
var matrixStates = []string{"waiting", "active", "released", "expired", "aborted", "withdrawn", "revoked"}

// matrix has, for each update and state, the answer and the claim's new state if it changes.
var matrix = []struct {
	methods string
	body    string // "" for none
	cells   string
}{
	//                                                   waiting        active         released expired aborted withdrawn revoked
	{"PATCH PUT", `{"ttl": 60}`, "                       400            200            400      400     400     400       400"},
	{"PATCH PUT", `{"status": "active"}`, "              409            200            400      400     400     400       400"},
	{"PATCH PUT", `{"status": "released"}`, "            400            204:released   204      400     400     400       400"},
	{"PATCH PUT", `{"status": "aborted"}`, "             204:aborted    204:aborted    400      400     204     400       400"},
	{"PATCH PUT", `{"status": "withdrawn"}`, "           204:withdrawn  204:withdrawn  400      400     400     204       400"},
	{"PATCH PUT", `{"status": "revoked"}`, "             204:revoked    204:revoked    400      400     400     400       204"},
	{"PATCH PUT", `{"status": "revoked", "reason": "r"}`, "204:revoked  204:revoked    400      400     400     400       204"},
	{"PATCH PUT", `{"status": "expired"}`, "             400            400            400      400     400     400       400"},
	{"PATCH PUT", `{"status": "waiting"}`, "             400            400            400      400     400     400       400"},
	{"PATCH PUT", `{}`, "                                400            400            400      400     400     400       400"},
	{"PATCH PUT", `{"colour": "red"}`, "                 400            400            400      400     400     400       400"},
	{"PATCH PUT", `{"ttl": 60, "status": "released"}`, " 400            400            400      400     400     400       400"},
	{"PATCH", `{"ttl": 60, "status": "active"}`, "       400            400            400      400     400     400       400"},
	{"PUT", `{"ttl": 60, "status": "active"}`, "         409            200            400      400     400     400       400"},
	{"DELETE", "", "                                     204:withdrawn  204:released   204      204     204     204       204"},
}

// TestRESTMatrix shows what every update does to a claim in every state. TestSoakRESTMatrix does it on MySQL.
func TestRESTMatrix(t *testing.T) {
	t.Parallel()
	holdsMatrix(t, harness.Embedded(t))
}

func holdsMatrix(t *testing.T, database string) {
	t.Helper()
	s := startREST(t, database)
	for _, row := range matrix {
		for method := range strings.FieldsSeq(row.methods) {
			for i, cell := range strings.Fields(row.cells) {
				t.Run(matrixStates[i]+" "+method+" "+row.body, func(t *testing.T) { matrixCell(t, s, matrixStates[i], method, row.body, cell) })
			}
		}
	}
}

// matrixCell updates a claim that is in a state.
func matrixCell(t *testing.T, s *restServer, state, method, body, cell string) {
	c := inStatus(t, s, state)
	code, after, moves := strings.Cut(cell, ":")
	if !moves {
		after = state
	}
	var content any
	if body != "" {
		content = body
	}
	a := s.do(t, method, claimPath(c.ID), content)
	if fmt.Sprint(a.code) != code {
		t.Errorf("%d %s, want %s", a.code, a.body, code)
	}
	is := s.stands(t, c.ID, after)
	renewed := a.code == http.StatusOK && strings.Contains(body, "ttl")
	if (is.Version != c.Version) != (moves || renewed) {
		t.Errorf("the version was %d and is %d", c.Version, is.Version)
	}
	if renewed {
		about(t, "ttl", is.TTL, 60)
	}
	if a.code == http.StatusOK && a.claim(t).Status != "active" {
		t.Errorf("200, and the claim is %s", a.claim(t).Status)
	}
	if a.code == http.StatusConflict || a.code == http.StatusBadRequest {
		var problems map[string]string
		a.decode(t, &problems)
	}
}
