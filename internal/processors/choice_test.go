package processors

import (
	"testing"
	"time"
)

// see has a choice look at the same load some times, and returns for how many looks one processor was enough.
func (c *choice) see(n int, l load) (one int) {
	for range n {
		if c.next(l) {
			one++
		}
	}
	return one
}

var (
	little = load{busy: mostOfOne, together: few, underWay: few}
	much   = map[string]load{"calls": {underWay: few + 1}, "changes in a commit": {together: few + 0.1}, "other work": {busy: mostOfAll + 0.1}}
)

// TestChoice: one processor is enough once there has been little to do for a second, and no longer when there is more.
func TestChoice(t *testing.T) {
	for name, much := range much {
		var c choice
		if one := c.see(calm-1, little); one != 0 {
			t.Errorf("%s: %d looks too early", name, one)
		}
		if c.next(much) || c.see(calm-1, little) != 0 {
			t.Errorf("%s: more to do does not count", name)
		}
		if !c.next(little) || c.see(1000, little) != 1000 {
			t.Errorf("%s: little to do does not count", name)
		}
		if c.next(much) {
			t.Errorf("%s: one is still enough", name)
		}
	}
}

// TestOneThatIsFull: one processor is not enough if it is used up, which several need not be.
func TestOneThatIsFull(t *testing.T) {
	full := load{busy: 0.95}
	var c choice
	if one := c.see(calm, full); one != 1 {
		t.Errorf("%d looks", one)
	}
	if c.next(full) {
		t.Error("one is enough although it is used up")
	}
}

// TestPatience: where one processor was enough for a short time only, it takes twice as long until the next attempt.
func TestPatience(t *testing.T) {
	var c choice
	for _, after := range []int{10, 20, 40, 80, 160, 320, 640, 640} {
		if early := c.see(after-1, little); early != 0 || !c.next(little) {
			t.Errorf("not after %d looks", after)
		}
		c.next(load{busy: 2})
	}
	c.see(mostCalm+settled, little)
	c.next(load{busy: 2})
	if early := c.see(calm-1, little); early != 0 || !c.next(little) {
		t.Error("the time after which one was tried does not become short again")
	}
}

func TestSince(t *testing.T) {
	at := time.Now()
	last := counts{at, time.Second, 10, 100}
	if got, want := since(last, counts{at.Add(200 * time.Millisecond), 1100 * time.Millisecond, 14, 106}, 3), (load{0.5, 1.5, 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := since(last, last, 0), (load{}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
