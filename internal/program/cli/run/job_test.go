package run

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
)

// TestReportsInTime: what the guard has reported is there as soon as this process looks, and not after the report before it was heard. Otherwise
// a guard that has done its work counts as one that stands still, and that is printed beside the loss.
func TestReportsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reports := readReports(json.NewDecoder(strings.NewReader(`{"Lapsed":true}{"Ended":true}`)))
		synctest.Wait()
		for _, want := range []report{{Lapsed: true}, {Ended: true}} {
			select {
			case r, ok := <-reports:
				if !ok || r != want {
					t.Errorf("%+v, want %+v", r, want)
				}
			default:
				t.Fatalf("no report, want %+v", want)
			}
		}
	})
}
