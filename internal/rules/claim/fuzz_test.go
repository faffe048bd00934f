package claim_test

import "testing"

// FuzzQueue turns bytes into commands and times, and checks what the property tests
// check, on a queue that is known as a whole and on one that is read through a window.
func FuzzQueue(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("first come, first served"))
	f.Add([]byte{2, 0, 0, 0, 0, 2, 1, 1, 1, 1, 3, 8, 0, 2, 5, 1, 0, 4, 9})
	f.Add([]byte{0, 5, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 1, 8, 8, 9, 4, 5, 2, 8, 7, 1, 1})
	f.Add([]byte{0, 3, 0, 1, 0, 2, 4, 0, 1, 2, 3, 0, 1, 0, 2, 11, 2, 1, 2, 1, 0, 2, 11, 1, 1, 2, 1, 0})
	f.Fuzz(func(t *testing.T, bytes []byte) {
		bytes = bytes[:min(len(bytes), 256)] // longer runs find no more, only slower
		whole := &tape{bytes}
		for m := newMachine(t, whole); len(whole.bytes) > 0; {
			m.tick()
			m.step(m.command())
		}
		windowed := &tape{bytes}
		for w := newWindow(t, windowed); len(windowed.bytes) > 0; {
			w.tick()
			w.batch()
			if w.choose(8, "prune") == 1 {
				w.prune()
			}
		}
	})
}
