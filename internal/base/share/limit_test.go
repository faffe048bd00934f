package share_test

import (
	"fmt"
	"testing"

	"github.com/locket-service/locket/internal/base/share"
)

// begin begins as many uses of an identity as the limit allows, and returns their number.
func begin(l *share.Limit, identity string, keeps bool) (n int) {
	for n <= 1000 && l.Begin(identity, keeps) {
		n++
	}
	return n
}

func TestLasting(t *testing.T) {
	l := share.NewLasting(100)
	for i, want := range []int{50, 25, 16, 9, 0} {
		name := fmt.Sprint("identity ", i)
		if got := begin(l, name, false); got != want {
			t.Errorf("%s gets %d, want %d", name, got, want)
		}
	}
	l.End("identity 0")
	if l.Begin("identity 0", false) || l.Begin("identity 0", true) || !l.Begin("identity 4", false) {
		t.Error("room that was left is not for the identity with less than its share")
	}
	l = share.NewLasting(100)
	if got := begin(l, "many", true); got != 75 {
		t.Errorf("an identity keeps %d of 100", got)
	}
	if got := begin(l, "other", false); got != 25 {
		t.Errorf("beside it another identity gets %d", got)
	}
	l = share.NewLasting(100)
	if got := begin(l, "", false); got != 100 {
		t.Errorf("without authentication there are %d of 100", got)
	}
}

func TestShort(t *testing.T) {
	l := share.NewShort(100)
	if n := begin(l, "a", false); n != 50 {
		t.Errorf("a gets %d", n)
	}
	if n := begin(l, "b", false); n != 25 {
		t.Errorf("b gets %d", n)
	}
	if n := begin(l, "a", true); n != 25 {
		t.Errorf("a keeps %d more", n)
	}
	l.Add("b")
	if l.Count() != 101 || l.Begin("b", true) {
		t.Errorf("%d uses", l.Count())
	}
	l.End("b")
	if l.Count() != 100 {
		t.Errorf("%d uses", l.Count())
	}
}
