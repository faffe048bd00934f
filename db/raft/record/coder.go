package record

import (
	"errors"
	"fmt"
	"time"

	"github.com/locket-service/locket/internal/claim"
)

// ErrNotSent is returned, wrapped, for what no other node could read.
var ErrNotSent = errors.New("it cannot be sent to another node")

// coder writes the fields of what travels between nodes, or reads them: which these are is said once for both. It has a
// writer or a reader. What it writes it does not change: others may read it at the same time.
type coder struct {
	w *writer
	r *reader
	// err is why something cannot be written.
	err error
	// claims are those of an outcome.
	claims shared[claim.Claim]
	// depth is how many commands stand around the one under way.
	depth int
}

// write returns the encoded message, after the version of its format.
func write(fields func(*coder)) ([]byte, error) {
	c := &coder{w: &writer{buf: []byte{Version}}}
	fields(c)
	return c.w.buf, c.err
}

// read reads the whole output of write.
func read(data []byte, fields func(*coder)) error {
	if err := checkVersion(data); err != nil {
		return err
	}
	c := &coder{r: &reader{rest: data[1:]}}
	fields(c)
	if len(c.r.rest) > 0 {
		c.r.fail("end")
	}
	return c.r.err
}

func (c *coder) writes() bool { return c.w != nil }

// fail ends the work on what is wrong.
func (c *coder) fail(what string) {
	switch {
	case !c.writes():
		c.r.fail(what)
	case c.err == nil:
		c.err = fmt.Errorf("%w: %s", ErrNotSent, what)
	}
}

// near sets the times to which others are written as differences.
func (c *coder) near(now claim.Instant) {
	if c.writes() {
		c.w.wall, c.w.lease = int64(now.Wall), int64(now.Lease)
	} else {
		c.r.wall, c.r.lease = int64(now.Wall), int64(now.Lease)
	}
}

func (c *coder) unsigned(n *uint64) {
	if c.writes() {
		c.w.unsigned(*n)
	} else {
		*n = c.r.unsigned()
	}
}

// signed codes a number, a time or a duration.
func signed[N ~int | ~int64](c *coder, numbers ...*N) {
	for _, n := range numbers {
		if c.writes() {
			c.w.number(int64(*n))
		} else {
			*n = N(c.r.number())
		}
	}
}

// small codes a number of one byte that is at most most.
func small[N ~uint8](c *coder, n *N, most N) {
	if c.writes() {
		c.w.byte(uint8(*n))
	} else if *n = N(c.r.byte()); *n > most {
		c.fail("number")
	}
}

func (c *coder) flags(flags ...*bool) {
	for _, b := range flags {
		var n uint8
		if c.writes() && *b {
			n = 1
		}
		if small(c, &n, 1); !c.writes() {
			*b = n == 1
		}
	}
}

func (c *coder) texts(texts ...*string) {
	for _, s := range texts {
		if c.writes() {
			c.w.text(*s)
		} else {
			*s = c.r.text()
		}
	}
}

func (c *coder) data(b *[]byte) {
	if c.writes() {
		c.w.data(*b)
	} else {
		*b = c.r.data()
	}
}

// list codes a slice; one without elements is nil when it is read.
func list[T any](c *coder, l *[]T, each func(*coder, *T)) {
	n := uint64(len(*l))
	if c.unsigned(&n); c.writes() {
		for i := range *l {
			each(c, &(*l)[i])
		}
		return
	}
	*l = nil
	for ; n > 0 && c.r.err == nil; n-- {
		*l = append(*l, *new(T))
		each(c, &(*l)[len(*l)-1])
	}
}

func (c *coder) names(names *[]string) { list(c, names, func(c *coder, s *string) { c.texts(s) }) }

// optional codes what may be nil.
func optional[T any](c *coder, p **T, fields func(*coder, *T)) {
	there := *p != nil
	if c.flags(&there); !there {
		return
	}
	if !c.writes() {
		*p = new(T)
	}
	fields(c, *p)
}

// shared are things to which several point: each is written once, and named by its number from then on.
type shared[T any] struct {
	known  []*T
	number map[*T]uint64
}

// code codes a pointer to one of them, which may be nil.
func (s *shared[T]) code(c *coder, p **T, fields func(*coder, *T)) {
	next := uint64(len(s.known)) + 1
	var n uint64
	if c.writes() && *p != nil {
		if n = s.number[*p]; n == 0 {
			n = next
		}
	}
	switch c.unsigned(&n); {
	case n > next:
		c.fail("reference")
	case n == next:
		if !c.writes() {
			*p = new(T)
		}
		s.known = append(s.known, *p)
		if s.number == nil {
			s.number = make(map[*T]uint64)
		}
		s.number[*p] = n
		fields(c, *p)
	case n > 0 && !c.writes():
		*p = s.known[n-1]
	}
}

// kind is one of the types that may stand in the same place.
type kind struct {
	// write writes what is of this kind, and reports whether it is.
	write func(c *coder, v any) bool
	read  func(c *coder) any
}

// values is the kind of the values of a type, and pointers that of the pointers to such.
func values[T any](fields func(*coder, *T)) kind {
	return kind{
		func(c *coder, v any) bool {
			is, ok := v.(T)
			if ok {
				fields(c, &is)
			}
			return ok
		},
		func(c *coder) any {
			var v T
			fields(c, &v)
			return v
		},
	}
}

func pointers[T any](fields func(*coder, *T)) kind {
	return kind{
		func(c *coder, v any) bool {
			is, ok := v.(*T)
			if ok {
				fields(c, is)
			}
			return ok
		},
		func(c *coder) any {
			v := new(T)
			fields(c, v)
			return v
		},
	}
}

// one is the kind of one value.
func one(value any) kind {
	return kind{func(_ *coder, v any) bool { return v == value }, func(*coder) any { return value }}
}

// oneOf codes what is of one of some kinds. Their places travel: kinds are only added, at the end.
func oneOf[T any](c *coder, kinds []kind, v *T) {
	if !c.writes() {
		if n := int(c.r.byte()); n < len(kinds) {
			*v, _ = kinds[n].read(c).(T)
		} else {
			c.fail("kind")
		}
		return
	}
	at := len(c.w.buf)
	c.w.byte(0)
	for n, k := range kinds {
		if k.write(c, any(*v)) {
			c.w.buf[at] = uint8(n)
			return
		}
	}
	c.fail(fmt.Sprintf("a %T", *v))
}

func duration(c *coder, d *time.Duration) { signed(c, d) }
