package record

import (
	"cmp"
	"maps"
	"slices"
)

// maxBatches is of how many servers the last batch is kept. Each start of a server counts as another one.
const maxBatches = 1024

// Batches are the last batches of servers that do not decide: the batches with the highest numbers. The order of additions
// changes nothing. A batch that is new to a full table and has a lower number than all in it is
// old: it may have been there before.
type Batches struct{ last map[uint64]Batch }

// Last returns the last batch of the server of a batch, with the Seq 0 for none. old says that the batch comes too late.
func (b *Batches) Last(of Origin) (last Batch, old bool) {
	last, known := b.last[of.Node]
	switch {
	case known:
		return last, of.Seq < last.Seq
	case len(b.last) < maxBatches:
		return last, false
	}
	lowest := b.lowest()
	return last, of.Seq <= lowest.Seq
}

// Add adds a batch, unless a later one of its server is there.
func (b *Batches) Add(batch Batch) {
	if b.last == nil {
		b.last = make(map[uint64]Batch)
	}
	if batch.Seq <= b.last[batch.Node].Seq {
		return
	}
	batch.Claims = 0
	b.last[batch.Node] = batch
	if len(b.last) > maxBatches {
		delete(b.last, b.lowest().Node)
	}
}

// lowest returns the batch with the lowest number.
func (b *Batches) lowest() Batch {
	return slices.MinFunc(slices.Collect(maps.Values(b.last)), func(x, y Batch) int {
		return cmp.Or(cmp.Compare(x.Seq, y.Seq), cmp.Compare(x.Node, y.Node))
	})
}

// All returns the batches, by server.
func (b *Batches) All() []Batch {
	return slices.SortedFunc(maps.Values(b.last), func(x, y Batch) int { return cmp.Compare(x.Node, y.Node) })
}
