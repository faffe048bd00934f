package watch

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRefusals()
		r.Count("nobody reads")
		first := r.Read()
		count := func(names ...string) {
			for _, name := range names {
				r.Count(name)
			}
		}
		wants := func(reader *RefusalReader, passes func(string) bool, want uint64) {
			t.Helper()
			if got := reader.Next(passes); got != want {
				t.Errorf("%d refusals, want %d", got, want)
			}
		}
		count("a", "a", "b")
		wants(first, nil, 0) // the second has not ended
		time.Sleep(time.Second)
		second := r.Read()
		wants(first, nil, 3)
		wants(first, nil, 0)
		wants(second, nil, 0)
		count("a")
		time.Sleep(2 * time.Second)
		count("jobs/1", "a")
		time.Sleep(time.Second)
		wants(first, nil, 3)
		wants(second, func(name string) bool { return strings.HasPrefix(name, "jobs/") }, 1)

		for i := range refusedNames + 7 {
			count(fmt.Sprint(i), fmt.Sprint(i))
		}
		time.Sleep(time.Second)
		wants(first, nil, 2*(refusedNames+7))
		wants(second, func(string) bool { return true }, 2*refusedNames)

		count("late")
		for range 2 * refusedSeconds {
			time.Sleep(time.Second)
			count("a")
		}
		time.Sleep(time.Second)
		wants(first, nil, refusedSeconds)
		if kept := len(r.seconds); kept > refusedSeconds {
			t.Errorf("%d seconds are kept", kept)
		}
		first.Close()
		second.Close()
		count("a")
		if len(r.seconds) > 0 {
			t.Error("counts while nobody reads")
		}
	})
}
