package tracing

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/fixtures"
)

// While no trace can be sent, each batch of spans fails; the log reports that only now and then.
func TestErrorsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs fixtures.Buffer
		handler := logErrors(slog.New(slog.NewTextHandler(&logs, nil)))
		for range 10_000 {
			handler.Handle(errors.New("connection refused"))
			time.Sleep(10 * time.Millisecond)
		}
		if n := strings.Count(logs.String(), "traces cannot be sent"); n < 10 || n > 15 {
			t.Errorf("%d lines in 100 s", n)
		}
	})
}
