package etcdlog_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/locket-service/locket/db/replica/etcdlog"
)

func benchmarked(b *testing.B) *etcdlog.Log {
	b.Helper()
	e, err := triple37()
	if err != nil {
		b.Fatal(err)
	}
	l, err := etcdlog.Open(quietly(e))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	if err := l.Raise(b.Context(), 0, 0, nil); err != nil {
		b.Fatal(err)
	}
	return l
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{300, 16 << 10, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			l, data, index := benchmarked(b), bytes.Repeat([]byte("x"), size), uint64(0)
			for b.Loop() {
				index++
				if err := l.Append(b.Context(), 1, index, data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkLast(b *testing.B) {
	l := benchmarked(b)
	if err := l.Append(b.Context(), 1, 1, nil); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := l.Last(b.Context(), 1); err != nil {
			b.Fatal(err)
		}
	}
}
