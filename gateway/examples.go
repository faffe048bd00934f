package gateway

import (
	"encoding/json"
	"reflect"
)

// Examples for the OpenAPI document and the page that shows it. A test validates them by the schemas.

const claimExample = `{
	"url": "http://127.0.0.1:8892/v1/claims/nightly-7/", "id": "nightly-7", "resource": "nightly-report", "owner": "me",
	"identity": null, "mode": "exclusive", "type": "lock", "value": null, "status": "active",
	"status_history": [
		{"status": "waiting", "timestamp": "2026-11-21T17:47:02.123456Z"},
		{"status": "active", "timestamp": "2026-11-21T17:47:02.123456Z"}
	],
	"created": "2026-11-21T17:47:02.123456Z", "ttl": 59.2, "active_duration": 0.8, "waiting_duration": 0.0,
	"user_data": {"host": "a7"}, "token": 1795283222123457, "position": null, "version": 1795283222123457,
	"reason": null, "ended_by": null, "session": null, "wait_ttl": null
}`

const holderExample = `{
	"url": "http://127.0.0.1:8892/v1/claims/nightly-7/", "id": "nightly-7", "owner": "me", "identity": null,
	"mode": "exclusive", "type": "lock", "status": "active", "since": "2026-11-21T17:47:02.123456Z", "ttl": 59.2,
	"active_duration": 0.8, "waiting_duration": 0.0, "token": 1795283222123457, "position": null, "version": 1795283222123457
}`

const lockExample = `{"url": "http://127.0.0.1:8892/v1/locks/scheduler/", "key": "scheduler", "owner": "me", "value": "10.0.0.7:80", "type": "lock"}`

// viewExamples are answers, by the types of their views.
var viewExamples = map[reflect.Type]string{
	reflect.TypeFor[claimView](): claimExample,
	reflect.TypeFor[queueView](): `{
		"url": "http://127.0.0.1:8892/v1/resources/nightly-report/", "resource": "nightly-report", "version": 1795283222123457,
		"token": 1795283222123457, "holders": [` + holderExample + `], "waiting": 0, "waiters": [], "waits": []
	}`,
	reflect.TypeFor[resourceView](): `{
		"url": "http://127.0.0.1:8892/v1/resources/nightly-report/", "resource": "nightly-report", "version": 1795283222123999,
		"holding": 1, "holder": ` + holderExample + `, "waiting": 2, "oldest_wait": 12.5
	}`,
	reflect.TypeFor[sessionView](): `{
		"url": "http://127.0.0.1:8892/v1/sessions/worker-7-4f1c2a90/", "id": "worker-7-4f1c2a90", "owner": "worker-7", "ttl": 10,
		"server": "06hm3q2f7zj9c2m5t8v0abcdef-1", "ends_in": null, "created": "2026-11-21T17:47:02.123456Z", "holding": 3, "waiting": 1
	}`,
	reflect.TypeFor[statusView](): `{
		"problems": [],
		"servers": [{"name": "06hm3q2f7zj9c2m5t8v0abcdef", "host": "a7", "version": "v1.4.0", "started": "2026-11-21T17:40:00.5Z", "silent": 0}],
		"database": {"engine": "mysql", "version": "11.8.3-MariaDB"},
		"clock": {"time": "2026-11-21T17:47:02.123456Z", "ahead": 0.002, "skew": 0, "lease_time_runs": true, "reason": null, "outage": 12.5}
	}`,
	reflect.TypeFor[lockView]():       lockExample,
	reflect.TypeFor[heldView]():       lockExample[:len(lockExample)-1] + `, "token": 1795283222123457}`,
	reflect.TypeFor[identityView]():   `{"name": "spiffe://example.org/deploy", "groups": ["operators"], "authentication": true}`,
	reflect.TypeFor[permissionView](): `{"allowed": true, "line": 7}`,
}

// bodyExamples are bodies of requests, by their operations.
var bodyExamples = map[string]string{
	"createClaim":  `{"id": "nightly-7", "resource": "nightly-report", "owner": "me", "ttl": 60, "user_data": {"host": "a7"}}`,
	"updateClaim":  `{"ttl": 60}`,
	"refreshClaim": `{"ttl": 60, "status": "active"}`,
}

const (
	problemsExample = `{"ttl": "is required", "colour": "unknown parameter"}`
	problemExample  = `{"title": "Bad Request", "status": 400, "detail": "parameters are wrong: colour, ttl", "instance": "urn:request:build-17",
		"errors": {"ttl": "is required", "colour": "unknown parameter"}}`
)

// exampleOf returns the example of a view, or of a list of views.
func exampleOf(t reflect.Type) any {
	if t.Kind() == reflect.Slice {
		return []any{exampleOf(t.Elem())}
	}
	return example(viewExamples[t])
}

// example returns the value of an example, which is JSON.
func example(text string) (value any) {
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		panic("the example " + text + ": " + err.Error())
	}
	return value
}
