package etcdlog_test

import (
	"errors"
	"testing"

	"github.com/locket-service/locket/db/replica/order"
	"github.com/locket-service/locket/fixtures"
)

// An append whose request or answer is lost finds out whether the record is in the log.
func TestLostAnswers(t *testing.T) {
	e := cluster(t, single34)
	o := quietly(e)
	proxy := fixtures.NewProxy(t, e.Members[0].Address())
	direct := open(t, o)
	o.Endpoints = []string{"http://" + proxy.Addr()}
	l := open(t, o)
	fill(t, l, 1, 1)
	for index, lose := range []func([]byte) <-chan struct{}{proxy.CutOn, proxy.CutBefore} {
		lost, index := lose([]byte("lost")), uint64(index)+2
		if err := l.Append(t.Context(), 1, index, []byte("lost")); err != nil {
			t.Errorf("record %d: %v", index, err)
		}
		<-lost
		if last, err := direct.Last(t.Context(), 0); err != nil || last != index {
			t.Errorf("the last record is %d, %v, want %d", last, err, index)
		}
	}
	lost := proxy.CutAllOn([]byte("unknown"))
	if err := l.Append(brief(t), 1, 4, []byte("unknown")); !errors.Is(err, order.ErrUnavailable) {
		t.Errorf("with no way to find out: %v", err)
	}
	<-lost
	proxy.Restore()
	must(t, l.Append(t.Context(), 1, 4, []byte("unknown")))

	lost = proxy.CutOn([]byte("the next decider"))
	must(t, l.Raise(t.Context(), 1, 4, []byte("the next decider")))
	<-lost
	must(t, l.Append(t.Context(), 2, 5, nil))
	if last, err := direct.Last(t.Context(), 0); err != nil || last != 5 {
		t.Errorf("the last record is %d, %v, want 5", last, err)
	}
}
