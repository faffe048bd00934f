package gateway_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
)

// FuzzBody: a POST with any body never gets a 5xx; a refusal is an object of strings; and accepted values come back
// unchanged.
func FuzzBody(f *testing.F) {
	for _, body := range []string{
		`{"resource": "r", "ttl": 5}`, `{"resource": "r", "ttl": 0.5, "user_data": {"a": [null, 1e400, "\ud83d\ude00"]}}`,
		`{"resource": "\ufffd", "ttl": 1, "owner": "o", "mode": "shared", "id": "x", "type": "presence", "value": "v"}`,
		`{"resource": "\ud800", "ttl": -1}`, `[]`, `{`, "\xff", `{"resource": 1, "ttl": "1", "mode": 1, "x": 1}`,
	} {
		f.Add([]byte(body))
	}
	h := handler(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		got := serve(t.Context(), h, http.MethodPost, "/v1/claims/", body)
		switch got.Code {
		case http.StatusOK, http.StatusCreated, http.StatusAccepted:
			returned(t, body, got.Body.Bytes())
		case http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge:
			refused(t, got.Body.Bytes())
		default:
			t.Errorf("%d %s", got.Code, got.Body)
		}
	})
}

// returned fails the test unless the members of a body match the claim.
func returned(t *testing.T, body, claim []byte) {
	t.Helper()
	sent, got := members(t, body), members(t, claim)
	for name, value := range sent {
		none := value == "" && got[name] == nil
		if name == "ttl" || none {
			continue
		}
		if !reflect.DeepEqual(got[name], value) {
			t.Errorf("%s: sent %v, got %v", name, value, got[name])
		}
	}
}

// members decodes an object and keeps numbers as they are written.
func members(t *testing.T, text []byte) (object map[string]any) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&object); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return object
}

func refused(t *testing.T, answer []byte) {
	t.Helper()
	var problems map[string]string
	if err := json.Unmarshal(answer, &problems); err != nil || len(problems) == 0 {
		t.Errorf("refused with %s (%v)", answer, err)
	}
}

// FuzzUpdate: the same for PATCH and PUT.
func FuzzUpdate(f *testing.F) {
	for _, body := range []string{`{"ttl": 5}`, `{"status": "active"}`, `{"status": "released", "reason": "x"}`, `{"ttl": 1, "status": "active"}`, `{"status": "expired"}`} {
		f.Add(true, []byte(body))
		f.Add(false, []byte(body))
	}
	h := handler(f)
	f.Fuzz(func(t *testing.T, put bool, body []byte) {
		serve(t.Context(), h, http.MethodPost, "/v1/claims/", []byte(`{"resource": "r", "ttl": 60, "id": "c"}`))
		method := http.MethodPatch
		if put {
			method = http.MethodPut
		}
		got := serve(t.Context(), h, method, "/v1/claims/c/", body)
		switch got.Code {
		case http.StatusOK, http.StatusNoContent:
		case http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge:
			refused(t, got.Body.Bytes())
		default:
			t.Errorf("%d %s", got.Code, got.Body)
		}
	})
}

// FuzzQuery: whatever the filters are, they never get a 5xx.
func FuzzQuery(f *testing.F) {
	for _, query := range []string{
		"", "status=active&mode=shared&resource=r&owner=o", "minimum_ttl=1e3&maximum_ttl=NaN", "limit=5&offset=-1",
		"minimum_created=2026-11-21T17:47:02.5Z&maximum_created=x", "%zz", "a=1;b=2", "page_token=MQ", "status=%00", "limit=99999999999999999999",
	} {
		f.Add(query)
	}
	h := handler(f)
	f.Fuzz(func(t *testing.T, query string) {
		recorder := httptest.NewRecorder()
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/claims/", nil)
		req.URL.RawQuery = query
		h.ServeHTTP(recorder, req)
		code, body := recorder.Code, recorder.Body.Bytes()
		switch code {
		case http.StatusOK:
			var claims []any
			if err := json.Unmarshal(body, &claims); err != nil {
				t.Errorf("the answer: %v", err)
			}
		case http.StatusBadRequest:
			refused(t, body)
		default:
			t.Errorf("%d %s", code, body)
		}
	})
}
