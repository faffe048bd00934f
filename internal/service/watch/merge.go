package watch

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/locket-service/locket/db"
)

// merge puts the commits of several servers in one order: a server's commits by their numbers, changes of one
// resource by its versions, and others by time. The argument is ordered by server and number.
//
// So every commit comes after the commits that it builds on, even if the clocks of a cluster's nodes differ.
func merge(commits []db.Commit) []db.Commit {
	if len(commits) == 0 || commits[0].Server == commits[len(commits)-1].Server {
		return commits
	}
	q := &mergeQueue{commits: commits, before: make([]int, len(commits)), after: make([][]int, len(commits))}
	for i := 1; i < len(commits); i++ {
		if commits[i].Server == commits[i-1].Server {
			q.order(i-1, i)
		}
	}
	q.orderResources()
	for i, n := range q.before {
		if n == 0 {
			q.ready = append(q.ready, i)
		}
	}
	heap.Init(q)
	merged := make([]db.Commit, 0, len(commits))
	for len(q.ready) > 0 {
		i := heap.Pop(q).(int)
		merged = append(merged, commits[i])
		for _, next := range q.after[i] {
			if q.before[next]--; q.before[next] == 0 {
				heap.Push(q, next)
			}
		}
	}
	return merged
}

// mergeQueue has the commits that may come next, the earliest first.
type mergeQueue struct {
	commits []db.Commit
	before  []int   // number of commits that must come before each one
	after   [][]int // the commits that must come after each one
	ready   []int
}

func (q *mergeQueue) order(first, second int) {
	q.after[first] = append(q.after[first], second)
	q.before[second]++
}

// orderResources puts the commits that change a resource in the order of its versions.
func (q *mergeQueue) orderResources() {
	type change struct {
		version uint64
		commit  int
	}
	byResource := make(map[string][]change)
	for i, c := range q.commits {
		for _, t := range c.Changes {
			changes := byResource[t.After.Resource]
			if last := len(changes) - 1; last < 0 || changes[last].commit != i {
				byResource[t.After.Resource] = append(changes, change{t.After.Version, i})
			}
		}
	}
	for _, changes := range byResource {
		slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.version, b.version) })
		for i := 1; i < len(changes); i++ {
			q.order(changes[i-1].commit, changes[i].commit)
		}
	}
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (q *mergeQueue) Len() int { return len(q.ready) }

func (q *mergeQueue) Less(i, j int) bool {
	a, b := q.commits[q.ready[i]], q.commits[q.ready[j]]
	return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Server, b.Server)) < 0
}

func (q *mergeQueue) Swap(i, j int) { q.ready[i], q.ready[j] = q.ready[j], q.ready[i] }
func (q *mergeQueue) Push(i any)    { q.ready = append(q.ready, i.(int)) }

func (q *mergeQueue) Pop() any {
	last := len(q.ready) - 1
	i := q.ready[last]
	q.ready = q.ready[:last]
	return i
}
