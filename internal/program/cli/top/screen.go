package top

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/term"
)

// Control sequences of ECMA-48 and xterm: to the alternate screen, without a cursor and without wrapping, and back. All terminals of today
// know them; TERM=dumb gets none.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	eraseLine   = "\x1b[K"
	eraseBelow  = "\x1b[J"
)

const ctrlC = 0x03

// ErrHangUp is returned by Screen when the terminal is gone.
var ErrHangUp = errors.New("the terminal is gone")

// Screen shows Snapshots on a terminal until a key (q or Ctrl-C, nil), the context or an error ends it. show returns the text of one
// for a terminal of so many columns and lines.
func Screen(ctx context.Context, config Config, in, out *os.File, show func(s Snapshot, width, height int) string) (err error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	m := newMonitor(config)
	t := &terminal{in: in, out: out}
	// Restored before an error is said, and before a panic is.
	defer func() { err = errors.Join(err, t.leave()) }()
	events, done := make(chan func() error), make(chan struct{})
	defer close(done)
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	go forward(resized, events, done)
	err = m.run(ctx, events, func(s Snapshot) error {
		if !t.entered {
			if err := t.enter(); err != nil {
				return err
			}
			if term.IsTerminal(int(in.Fd())) {
				go t.readKeys(events, done, m)
			}
		}
		width, height := t.size()
		return t.draw(show(s, width, height), height)
	})
	if errors.Is(err, errQuit) {
		return nil
	}
	return err
}

var errQuit = errors.New("quit")

// forward has a new Snapshot be shown when the terminal has another size.
func forward(resized <-chan os.Signal, events chan<- func() error, done <-chan struct{}) {
	for {
		select {
		case <-resized:
		case <-done:
			return
		}
		select {
		case events <- func() error { return nil }:
		case <-done:
			return
		}
	}
}

// terminal is a terminal with an alternate screen.
type terminal struct {
	in, out *os.File
	entered bool
	before  *term.State // of in, nil if it is not a terminal
}

func (t *terminal) enter() error {
	t.entered = true
	if term.IsTerminal(int(t.in.Fd())) {
		before, err := term.MakeRaw(int(t.in.Fd()))
		if err != nil {
			return err
		}
		t.before = before
	}
	_, err := t.out.WriteString(enterScreen)
	return err
}

// leave restores the terminal. That fails if it is gone, which nobody need be told then.
func (t *terminal) leave() error {
	if !t.entered {
		return nil
	}
	_, _ = t.out.WriteString(leaveScreen)
	if t.before == nil {
		return nil
	}
	if err := term.Restore(int(t.in.Fd()), t.before); err != nil && !errors.Is(err, syscall.EIO) {
		return err
	}
	return nil
}

// size is how many columns and lines the terminal has.
func (t *terminal) size() (width, height int) {
	width, height, err := term.GetSize(int(t.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// draw shows the lines of a text, as many as there is room for, in one write.
func (t *terminal) draw(text string, height int) error {
	var frame strings.Builder
	frame.WriteString(home)
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	lines = lines[:min(len(lines), height)]
	for i, line := range lines {
		frame.WriteString(eraseLine + line) // after a line that fills the width the cursor is on its last cell
		if i < len(lines)-1 {
			frame.WriteString("\r\n")
		}
	}
	frame.WriteString(eraseBelow)
	_, err := t.out.WriteString(frame.String())
	return err
}

// readKeys does what keys mean. A terminal that is gone ends it all. A read of a terminal has no end, so this goroutine is
// left behind when all else ends.
func (t *terminal) readKeys(events chan<- func() error, done <-chan struct{}, m *monitor) {
	for keys := bufio.NewReader(t.in); ; {
		key, err := keys.ReadByte()
		event := func() error { return ErrHangUp }
		if err == nil {
			event = func() error { return m.press(key) }
		}
		select {
		case events <- event:
		case <-done:
			return
		}
		if err != nil {
			return
		}
	}
}

func (m *monitor) press(key byte) error {
	switch key {
	case 'q', 'Q', ctrlC:
		return errQuit
	case 's':
		m.Order = m.Order.next()
	}
	return nil
}
