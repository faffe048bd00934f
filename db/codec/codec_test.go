package codec_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/db/codec"
	"github.com/locket-service/locket/internal/rules/claim"
)

const (
	wall  claim.Time = 1_790_000_000_000_000
	lease claim.Time = 1_780_000_000_000_000
)

// notCoded are fields that say how a claim was read.
var notCoded = map[string]bool{"Brief": true, "NewValue": true}

// fill gives each field of a struct a value of its own, and reports which fields it has filled.
func fill(t *testing.T, v reflect.Value, n int) int {
	t.Helper()
	for i := range v.NumField() {
		name, f := v.Type().Field(i).Name, v.Field(i)
		if n++; notCoded[name] {
			continue
		}
		switch f.Kind() {
		case reflect.String:
			f.SetString(strings.Repeat("x", n))
		case reflect.Slice:
			f.SetBytes([]byte(strings.Repeat("y", n)))
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Uint8:
			f.SetUint(1)
		case reflect.Uint32:
			f.SetUint(uint64(n))
		case reflect.Uint64:
			f.SetUint(uint64(wall) + uint64(n))
		case reflect.Int64:
			f.SetInt(int64(lease) - int64(n))
		case reflect.Struct:
			n = fill(t, f, n)
		default:
			t.Fatalf("%s has an unknown kind", name)
		}
	}
	return n
}

// full returns a claim with a value in each field.
func full(t *testing.T) claim.Claim {
	t.Helper()
	var c claim.Claim
	fill(t, reflect.ValueOf(&c).Elem(), 0)
	return c
}

func writer(buf []byte) codec.Coder {
	c := codec.Writer(buf)
	c.Near(wall, lease)
	return c
}

func reader(data []byte) codec.Coder {
	c := codec.Reader(data)
	c.Near(wall, lease)
	return c
}

// TestEveryField: each field of a claim and of a session is coded.
func TestEveryField(t *testing.T) {
	x, s := full(t), claim.Session{}
	fill(t, reflect.ValueOf(&s).Elem(), 0)
	w := writer(nil)
	w.Claim(&x)
	w.Session(&s)
	for _, parts := range []bool{false, true} {
		r := reader(w.Buffer())
		r.Sharing(parts)
		var gotClaim claim.Claim
		var gotSession claim.Session
		r.Claim(&gotClaim)
		r.Session(&gotSession)
		if err := r.End(); err != nil || !reflect.DeepEqual(gotClaim, x) || !reflect.DeepEqual(gotSession, s) {
			t.Errorf("got %+v, %+v, want %+v, %+v (%v)", gotClaim, gotSession, x, s, err)
		}
	}
}

// TestEveryChange: a patch has each field that the rules change.
func TestEveryChange(t *testing.T) {
	before := full(t)
	for _, name := range []string{"Type", "TTL", "Token", "Deadline", "Activated", "Finished", "Reason", "EndedBy", "Value"} {
		after := before
		after.Status, after.Version = claim.Released, before.Version+1
		f := reflect.ValueOf(&after).Elem().FieldByName(name)
		f.SetZero()
		w := writer(nil)
		w.Change(claim.Transition{Before: &before, After: &after})
		var p codec.Patch
		r := reader(w.Buffer())
		r.Patch(&p)
		got := before
		if p.Apply(&got); r.End() != nil || !reflect.DeepEqual(got, after) || p.From != before.Status {
			t.Errorf("%s: got %+v, want %+v (%v)", name, got, after, r.End())
		}
		if all := w.Buffer(); len(all) > 40+len(before.ID) {
			t.Errorf("%s: the patch has %d bytes", name, len(all))
		}
	}
}

// TestPacked: a packed patch is the patch, and knows its claim.
func TestPacked(t *testing.T) {
	x := full(t)
	for _, p := range []codec.Patch{
		{Fields: codec.Made, Claim: x},
		{From: claim.Active, Claim: claim.Claim{ID: "id", Status: claim.Expired, Version: 5}},
	} {
		packed, _ := p.Pack(nil)
		if got := packed.Patch(); packed.ID() != p.Claim.ID || !reflect.DeepEqual(got, p) {
			t.Errorf("%q: got %+v, want %+v", packed.ID(), got, p)
		}
	}
}

// TestNumbers: every number survives writing and reading, whatever it is near.
func TestNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		near := func(name string) claim.Time {
			return claim.Time(rapid.OneOf(rapid.Int64(), rapid.Just(int64(0)), rapid.Just(int64(math.MaxInt64)), rapid.Just(int64(math.MinInt64)), rapid.Int64Range(int64(wall)-1000, int64(wall)+1000)).Draw(t, name))
		}
		type all struct {
			wall, lease claim.Time
			version     uint64
			ttl         time.Duration
			text        string
			data        []byte
			flag        bool
		}
		var data []byte
		if rapid.Bool().Draw(t, "has data") {
			data = rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "data")
		}
		in := all{
			near("wall"), near("lease"), rapid.Uint64().Draw(t, "version"), time.Duration(rapid.Int64().Draw(t, "ttl")),
			rapid.String().Draw(t, "text"), data, rapid.Bool().Draw(t, "flag"),
		}
		wall, lease := near("near wall"), near("near lease")
		code := func(c *codec.Coder, x *all) {
			c.Near(wall, lease)
			c.Wall(&x.wall)
			c.Lease(&x.lease)
			c.Version(&x.version)
			c.Duration(&x.ttl)
			c.Text(&x.text)
			c.Data(&x.data)
			c.Flag(&x.flag)
		}
		w := codec.Writer(nil)
		code(&w, &in)
		r, out := codec.Reader(w.Buffer()), all{}
		if code(&r, &out); r.End() != nil || !reflect.DeepEqual(in, out) {
			t.Fatalf("got %+v, want %+v (%v)", out, in, r.End())
		}
	})
}

// TestFormat: another version is refused, and the error has both.
func TestFormat(t *testing.T) {
	w := codec.Writer(nil)
	w.Format(3)
	r := codec.Reader(w.Buffer())
	if r.Format(3); r.End() != nil {
		t.Error(r.End())
	}
	r = codec.Reader(w.Buffer())
	if r.Format(1); !errors.Is(r.Err(), codec.ErrFormat) || !strings.Contains(r.Err().Error(), "it is of version 3, and this locket reads 1") {
		t.Error(r.Err())
	}
}

// FuzzCoder: bytes that are no claim, session or patch are an error, never a panic.
func FuzzCoder(f *testing.F) {
	w := writer(nil)
	w.Claim(&claim.Claim{ID: "a", Status: claim.Active})
	f.Add(w.Buffer())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, code := range []func(*codec.Coder){
			func(c *codec.Coder) { c.Claim(new(claim.Claim)) },
			func(c *codec.Coder) { c.Session(new(claim.Session)) },
			func(c *codec.Coder) { c.Patch(new(codec.Patch)) },
		} {
			r := reader(data)
			if code(&r); r.Err() != nil && (!errors.Is(r.Err(), codec.ErrFormat) || r.More()) {
				t.Error(r.Err())
			}
		}
	})
}
