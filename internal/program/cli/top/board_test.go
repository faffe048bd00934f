package top

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// change is a change of a resource's claim, to a status.
func change(resource, id string, version uint64, before, after models.Status) *models.Transition {
	return &models.Transition{Before: before, Claim: &models.Claim{Id: id, Resource: resource, Version: version, Status: after}}
}

const (
	isWaiting  = models.Status_STATUS_WAITING
	isActive   = models.Status_STATUS_ACTIVE
	isReleased = models.Status_STATUS_RELEASED
	isExpired  = models.Status_STATUS_EXPIRED
)

// A board shows the last list, with the rates of the changes. A resource that has changed and is not in the list is free if the list has
// all; otherwise its last claim may hold it.
func TestBoard(t *testing.T) {
	t.Parallel()
	b := newBoard(noon)
	page := []*models.ResourceInfo{{
		Resource: "a", Holding: 1, Holder: &models.Claim{Id: "h", ActiveDuration: proto.Float64(60)}, Waiting: 2, OldestWait: proto.Float64(30), Deadlock: true,
	}, {Resource: "b", Holding: 3}}
	b.take(page, false, noon)
	for _, change := range []*models.Transition{
		change("a", "h", 3, isWaiting, isActive), change("c", "x", 5, isActive, isExpired), change("c", "y", 5, isWaiting, isActive), change("d", "z", 9, isActive, isReleased),
	} {
		b.apply(change, noon)
	}
	free := []Row{{Resource: "c", Rate: 2}, {Resource: "d", Rate: 1}}
	listed := []Row{
		{Resource: "a", Holding: 1, Holder: page[0].GetHolder(), Since: noon.Add(-time.Minute), Waiting: 2, WaitsSince: noon.Add(-30 * time.Second), Deadlock: true, Rate: 1},
		{Resource: "b", Holding: 3, Since: noon},
	}
	if got, want := b.rows(Name, noon), slices.Concat(listed, free); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	b.take(page, true, noon)
	unlisted := []Row{{Resource: "c", Holding: 1, Holder: b.changed["c"].last, Since: noon, Waiting: unknown, Rate: 2}, {Resource: "d", Waiting: unknown, Rate: 1}}
	if got, want := b.rows(Name, noon), slices.Concat(listed, unlisted); !slices.Equal(got, want) || b.changed["c"].last.GetId() != "y" {
		t.Errorf("%+v, want %+v", got, want)
	}
	for what, c := range map[string]struct {
		counter *counter
		want    float64
	}{"grants": {&b.grants, 2}, "waits": {&b.waits, 0}, "ends": {&b.ends, 2}, "expiries": {&b.expiries, 1}} {
		if got := b.rate(c.counter, noon); got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
	if rows := b.rows(Name, noon.Add(time.Hour)); len(rows) != 2 || len(b.changed) != 0 {
		t.Errorf("after an hour: %+v", rows)
	}
}

// A board has a bound.
func TestBoardIsBounded(t *testing.T) {
	t.Parallel()
	b := newBoard(noon)
	for i := range maxChanged + 1 {
		b.apply(change(fmt.Sprintf("k%d", i), "h", 1, isWaiting, isActive), noon)
	}
	if got := b.rate(&b.grants, noon); len(b.changed) != maxChanged || len(b.changes) != maxChanges || got != maxChanged+1 {
		t.Errorf("%d resources, %d changes, %v grants", len(b.changed), len(b.changes), got)
	}
}

// Rates are of the last seconds, or since the board was begun.
func TestRates(t *testing.T) {
	t.Parallel()
	b := newBoard(noon)
	var c counter
	for i := range 40 {
		c.add(noon.Add(time.Duration(i)*100*time.Millisecond), 1)
	}
	for after, want := range map[time.Duration]float64{4 * time.Second: 10, 8 * time.Second: 5, 10 * time.Second: 3, 12 * time.Second: 1, 13 * time.Second: 0, time.Hour: 0} {
		copied := c
		if got := b.rate(&copied, noon.Add(after)); got != want {
			t.Errorf("after %v: %v, want %v", after, got, want)
		}
	}
	c.add(noon, 1) // the clock has been set back
	if got := b.rate(&c, noon); got != 41 {
		t.Errorf("%v", got)
	}
}

// Each order has the resources in a line, and what is not known last.
func TestOrders(t *testing.T) {
	t.Parallel()
	b := newBoard(noon)
	for i, row := range []Row{{Waiting: 2, WaitsSince: noon}, {Waiting: 5}, {Waiting: 1, WaitsSince: noon.Add(-time.Hour)}, {Waiting: unknown}} {
		row.Resource = string(rune('d' - i))
		b.list = append(b.list, row)
		for range i {
			b.apply(change(row.Resource, "h", 1, isWaiting, isActive), noon)
		}
	}
	for order, want := range map[Order]string{Contended: "cdba", Busy: "abcd", Oldest: "bdca", Name: "abcd"} {
		got := ""
		for _, row := range b.rows(order, noon) {
			got += row.Resource
		}
		if got != want {
			t.Errorf("%v: %s, want %s", order, got, want)
		}
	}
	if Name.next() != Contended || Busy.String() != "busy" {
		t.Error("the orders do not come round")
	}
}
