package rest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/locket-service/locket/tests/harness"
)

// userData is JSON of every kind, by its peculiarity.
var userData = map[string]string{
	"null":                  `null`,
	"true":                  `true`,
	"false":                 `false`,
	"zero":                  `0`,
	"minus zero":            `-0`,
	"negative":              `-17`,
	"fraction":              `0.1`,
	"exponents":             `[1e5, 1E+5, 1e-7, 1.0, 100]`,
	"integers beyond 2^53":  `[9007199254740993, -9223372036854775809, 18446744073709551616]`,
	"many digits":           `[3.14159265358979323846264338327950288, 123456789012345678901234567890123456789012345678901234567890]`,
	"numbers of no float":   `[1e400, -1e400, 1e-400]`,
	"empty string":          `""`,
	"empty array":           `[]`,
	"empty object":          `{}`,
	"empty name":            `{"": 1, " ": 2}`,
	"string":                `"text"`,
	"HTML":                  `"<script>alert('a' && \"b\")</script>"`,
	"SQL":                   `"'; DROP TABLE claims; -- \\ % _ ? ` + "`" + `"`,
	"escapes":               `"\" \\ \/ \b \f \n \r \t \u0001 \u001f \u007f"`,
	"NUL":                   `"a\u0000b"`,
	"unicode":               `"ü ß 漢字 العربية \u00fc \u6f22 e\u0301"`,
	"emoji":                 `["🔒", "👩‍👩‍👧‍👦", "\ud83d\udd12"]`,
	"line separators":       `"\u2028\u2029` + "\u2028\u2029\ufeff\ufffd" + `"`,
	"emoji as names":        `{"🔒": {"\ud83d\udd11": 1}}`,
	"JSON in a string":      `"{\"a\": [1, 2]}"`,
	"names that look alike": `{"a": 1, "A": 2, "á": 3, "a\u0301": 4, "ttl": 5, "resource": 6}`,
	"space":                 " {\n\t\"a\" : [ 1 ,\r\n 2 ] } ",
	"mixed":                 `{"host": "a7", "pids": [1, 2, {"deep": [null, true, "x"]}], "started": "2026-11-21T17:47:02Z"}`,
	"1000 arrays deep":      strings.Repeat("[", 1000) + strings.Repeat("]", 1000),
	"1000 objects deep":     strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat("}", 1000),
	"10000 elements":        "[" + strings.Repeat("1,", 9_999) + "1]",
	"64 KiB":                `"` + strings.Repeat("x", 64<<10-2) + `"`,
	"64 KiB of characters":  `"` + strings.Repeat("ü", 32<<10-1) + `"`,
	"64 KiB of array":       "[" + strings.Repeat("0,", 32<<10-2) + "0]",
	"64 KiB of HTML":        `"` + strings.Repeat("<", 64<<10-2) + `"`,
}

// User data of any JSON comes back equal, in every answer. TestSoakRESTUserData shows it on MySQL.
func TestRESTUserData(t *testing.T) {
	t.Parallel()
	allComeBack(t, harness.Embedded(t))
}

func allComeBack(t *testing.T, database string) {
	t.Helper()
	s := startREST(t, database)
	for name, data := range userData {
		t.Run(name, func(t *testing.T) { comesBack(t, s, data) })
	}
}

func comesBack(t *testing.T, s *restServer, data string) {
	body := fmt.Sprintf(`{"resource": %q, "ttl": 60, "user_data": %s}`, t.Name(), data)
	created := s.post(t, body).is(t, http.StatusCreated)
	queued := s.post(t, body).is(t, http.StatusAccepted)
	id := created.claim(t).ID
	for _, a := range []reply{
		created, queued, s.do(t, "GET", claimPath(id), nil), s.do(t, "GET", claimPath(queued.claim(t).ID), nil),
		s.patch(t, id, object{"ttl": 60}), s.put(t, id, object{"ttl": 60, "status": "active"}),
	} {
		sameJSON(t, a.request, a.members(t)["user_data"], data)
	}
	listed := s.list(t, "resource="+url.QueryEscape(t.Name()))
	if len(listed) != 2 {
		t.Fatalf("%d claims are listed", len(listed))
	}
	for _, c := range listed {
		sameJSON(t, "in the list", c.UserData, data)
	}
	s.end(t, id, "released")
	sameJSON(t, "once it has ended", s.get(t, id).UserData, data)
}

// sameJSON fails the test unless two texts mean the same, numbers digit for digit.
func sameJSON(t *testing.T, where string, got []byte, want string) {
	t.Helper()
	if bytes.Equal(compact(t, got), compact(t, []byte(want))) {
		return
	}
	if a, b := parse(t, got), parse(t, []byte(want)); !reflect.DeepEqual(a, b) {
		t.Errorf("%s: %s, want %s", where, cut(got), cut([]byte(want)))
	}
}

// compact returns JSON without its spaces. It costs less than to parse it.
func compact(t *testing.T, text []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	harness.Must(t, json.Compact(&out, text))
	return out.Bytes()
}

func parse(t *testing.T, text []byte) (value any) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%v in %s", err, cut(text))
	}
	return value
}
