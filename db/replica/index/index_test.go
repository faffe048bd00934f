package index_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/locket-service/locket/db/replica/index"
)

// random returns a source of numbers, and says which one when the test fails.
func random(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// A table finds what was put into it, while it grows and becomes smaller, and nothing else.
func TestTable(t *testing.T) {
	const names = 10_000
	random := random(t)
	var slab index.Slab[string]
	table := index.NewTable(func(r index.Ref) string { return *slab.At(r) })
	want := map[string]index.Ref{}
	for _, share := range []int{90, 50, 5, 60} { // percent of additions
		for range 2 * names {
			name := strconv.Itoa(random.IntN(names))
			switch known := want[name]; {
			case random.IntN(100) >= share:
				table.Delete(name)
				if known != 0 {
					slab.Give(known)
					delete(want, name)
				}
			default:
				r, room := slab.Take()
				if *room != "" {
					t.Fatalf("room with %q in it", *room)
				}
				if *room = name; table.Put(r) != (known == 0) {
					t.Fatalf("%q is there: %v", name, known != 0)
				}
				if known == 0 {
					want[name] = r
				} else {
					slab.Give(r)
				}
			}
		}
		if table.Len() != len(want) {
			t.Fatalf("%d things, want %d", table.Len(), len(want))
		}
		for n := range names {
			if name := strconv.Itoa(n); table.Find(name) != want[name] {
				t.Fatalf("%q is %d, want %d", name, table.Find(name), want[name])
			}
		}
	}
}

// number is a thing of a list, and which one of the same it is.
type number struct{ n, edition int }

// A list keeps its things in order, from any place on and both ways, while it grows and shrinks; a copy does not
// change.
func TestList(t *testing.T) {
	const numbers = 4000
	random := random(t)
	list := index.NewList(func(a, b number) bool { return a.n < b.n })
	want := map[int]number{}
	type kept struct {
		list *index.List[number]
		want map[int]number
	}
	var copies []kept
	edition := 0
	for phase, share := range []int{100, 90, 50, 3, 60, 0} { // percent of settings
		for i := range 4 * numbers {
			n := random.IntN(numbers)
			if phase == 0 { // in order
				n = i % numbers
			}
			if random.IntN(100) < share {
				edition++
				list.Set(number{n, edition})
				want[n] = number{n, edition}
			} else {
				list.Delete(number{n: n})
				delete(want, n)
			}
			if i%(2*numbers) == numbers {
				copies = append(copies, kept{list.Copy(), maps.Clone(want)})
			}
		}
		check(t, random, list, want)
	}
	for len(want) > 0 { // from the begin
		n := slices.Min(slices.Collect(maps.Keys(want)))
		list.Delete(number{n: n})
		delete(want, n)
	}
	check(t, random, list, want)
	for _, c := range copies {
		check(t, random, c.list, c.want)
	}
}

func check(t *testing.T, random *rand.Rand, list *index.List[number], want map[int]number) {
	t.Helper()
	sorted := slices.Collect(maps.Values(want))
	slices.SortFunc(sorted, func(a, b number) int { return a.n - b.n })
	if list.Len() != len(sorted) {
		t.Fatalf("%d things, want %d", list.Len(), len(sorted))
	}
	var up, down []number
	list.Ascend(nil, func(n number) bool { up = append(up, n); return true })
	list.Descend(nil, func(n number) bool { down = append(down, n); return true })
	slices.Reverse(down)
	if !slices.Equal(up, sorted) || !slices.Equal(down, sorted) {
		t.Fatalf("%d things up and %d down are not the %d that were set", len(up), len(down), len(sorted))
	}
	first, there := list.First()
	last, isThere := list.Last()
	if there != (len(sorted) > 0) || isThere != there || there && (first != sorted[0] || last != sorted[len(sorted)-1]) {
		t.Fatalf("from %v to %v", first, last)
	}
	for range 200 {
		place, limit := random.IntN(4100)-50, 1+random.IntN(700)
		up, down = up[:0], down[:0]
		list.Ascend(func(n number) bool { return n.n < place }, func(n number) bool { up = append(up, n); return len(up) < limit })
		list.Descend(func(n number) bool { return n.n > place }, func(n number) bool { down = append(down, n); return len(down) < limit })
		slices.Reverse(down)
		at, found := slices.BinarySearchFunc(sorted, place, func(n number, place int) int { return n.n - place })
		if want := sorted[at:min(at+limit, len(sorted))]; !slices.Equal(up, want) {
			t.Fatalf("from %d up: %v, want %v", place, up, want)
		}
		if found {
			at++
		}
		if want := sorted[max(0, at-limit):at]; !slices.Equal(down, want) {
			t.Fatalf("from %d down: %v, want %v", place, down, want)
		}
	}
}

// A list that was filled in order, or has lost most of its things again, has few parts that are not full.
func TestListIsDense(t *testing.T) {
	list := index.NewList(func(a, b int) bool { return a < b })
	const full = 50_000
	for n := range full {
		list.Set(2 * n)
	}
	if parts := list.Parts(); parts > full/index.PartLen+1 {
		t.Errorf("%d things are in %d parts", full, parts)
	}
	for n := range full { // in order and in front of the others, too
		list.Set(n - 2*full)
	}
	if parts := list.Parts(); parts > 2*full/index.PartLen+2 {
		t.Errorf("%d things are in %d parts", 2*full, parts)
	}
	for n := range 2 * full {
		if list.Delete(n - 2*full); n%100 != 0 {
			list.Delete(2 * n)
		}
	}
	if parts := list.Parts(); parts > 4*(list.Len()/index.PartLen+1) {
		t.Errorf("%d things are in %d parts", list.Len(), parts)
	}
}
