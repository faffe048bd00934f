package record

import (
	"errors"
	"fmt"
	"time"

	"github.com/locket-service/locket/db/codec"
	"github.com/locket-service/locket/internal/rules/claim"
)

// ErrNotSent is returned, wrapped, for data that no other server could read.
var ErrNotSent = errors.New("it cannot be sent to another server")

// coder codes what travels between servers.
type coder struct {
	codec.Coder
	// err is why something cannot be written.
	err error
	// claims are the claims of an outcome.
	claims shared[claim.Claim]
	// depth is how many commands stand around the one under way.
	depth int
}

// write returns the encoded message, after the version of its format.
func write(fields func(*coder)) ([]byte, error) {
	c := &coder{Coder: codec.Writer(nil)}
	c.Format(Version)
	fields(c)
	return c.Buffer(), c.err
}

// read reads the whole output of write.
func read(data []byte, fields func(*coder)) error {
	c := &coder{Coder: codec.Reader(data)}
	if c.Format(Version); c.Err() == nil {
		fields(c)
	}
	return c.End()
}

// fail stops coding with an error.
func (c *coder) fail(what string) {
	switch {
	case c.Reads():
		c.Fail(what)
	case c.err == nil:
		c.err = fmt.Errorf("%w: %s", ErrNotSent, what)
	}
}

// signed codes numbers, times or durations.
func signed[N ~int | ~int64](c *coder, numbers ...*N) {
	for _, n := range numbers {
		codec.Signed(&c.Coder, n)
	}
}

func small[N ~uint8](c *coder, n *N, most N) { codec.Small(&c.Coder, n, most) }

func (c *coder) flags(flags ...*bool) {
	for _, flag := range flags {
		c.Flag(flag)
	}
}

func (c *coder) texts(texts ...*string) {
	for _, s := range texts {
		c.Text(s)
	}
}

// list codes a slice; one without elements is nil when it is read.
func list[T any](c *coder, l *[]T, each func(*coder, *T)) {
	n := uint64(len(*l))
	if c.Unsigned(&n); !c.Reads() {
		for i := range *l {
			each(c, &(*l)[i])
		}
		return
	}
	*l = nil
	for ; n > 0 && c.Err() == nil; n-- {
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
	if c.Reads() {
		*p = new(T)
	}
	fields(c, *p)
}

// shared codes things with several pointers to them: each is written once, and named by its number from then on.
type shared[T any] struct {
	known  []*T
	number map[*T]uint64
}

// code codes a pointer to one of them, which may be nil.
func (s *shared[T]) code(c *coder, p **T, fields func(*coder, *T)) {
	next := uint64(len(s.known)) + 1
	var n uint64
	if !c.Reads() && *p != nil {
		if n = s.number[*p]; n == 0 {
			n = next
		}
	}
	switch c.Unsigned(&n); {
	case n > next:
		c.fail("reference")
	case n == next:
		if c.Reads() {
			*p = new(T)
		}
		s.known = append(s.known, *p)
		if s.number == nil {
			s.number = make(map[*T]uint64)
		}
		s.number[*p] = n
		fields(c, *p)
	case n > 0 && c.Reads():
		*p = s.known[n-1]
	}
}

// kind is one of the types that may stand in the same place.
type kind struct {
	// write writes what is of this kind, and reports whether it is.
	write func(c *coder, v any) bool
	read  func(c *coder) any
}

// values is the kind for the values of a type, and pointers for pointers to them.
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
	if c.Reads() {
		var n uint8
		if c.Byte(&n); int(n) < len(kinds) {
			*v, _ = kinds[n].read(c).(T)
		} else {
			c.fail("kind")
		}
		return
	}
	at := len(c.Buffer())
	c.Byte(new(uint8))
	for n, k := range kinds {
		if k.write(c, any(*v)) {
			c.Buffer()[at] = uint8(n)
			return
		}
	}
	c.fail(fmt.Sprintf("a %T", *v))
}

func duration(c *coder, d *time.Duration) { signed(c, d) }
