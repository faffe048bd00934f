package top

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// panicking is a client whose feed panics.
type panicking struct{ models.LocketClient }

func (panicking) ListResources(context.Context, *models.ListResourcesRequest, ...grpc.CallOption) (*models.ListResourcesResponse, error) {
	return &models.ListResourcesResponse{}, nil
}

func (panicking) Watch(ctx context.Context, _ *models.WatchRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[models.WatchResponse], error) {
	if when, ok := ctx.Value(panicking{}).(<-chan struct{}); ok {
		<-when
		panic("the feed is broken")
	}
	return nil, errors.New("not yet")
}

// A panic while drawing or reading restores the terminal, and still ends the program.
func TestPanic(t *testing.T) {
	t.Parallel()
	for name, show := range map[string]func(drawn chan struct{}) string{
		"the picture is broken": func(chan struct{}) string { panic("the picture is broken") },
		"the feed is broken": func(drawn chan struct{}) string {
			select {
			case <-drawn:
			default:
				close(drawn)
			}
			return "a picture"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outside, inside := harness.OpenTerminal(t)
			before, err := unix.IoctlGetTermios(int(inside.Fd()), unix.TCGETS)
			harness.Must(t, err)
			drawn := make(chan struct{})
			ctx := context.WithValue(t.Context(), panicking{}, (<-chan struct{})(drawn))
			config := Config{
				Client: panicking{}, Explain: func(err error) error { return err },
				Timeout: time.Minute, Limit: 1, Interval: time.Millisecond,
			}
			what := panicOf(func() {
				err := Screen(ctx, config, inside, inside, func(Snapshot, int, int) string { return show(drawn) })
				t.Errorf("it ended: %v", err)
			})
			if !strings.Contains(what, name) {
				t.Errorf("%q", what)
			}
			after, err := unix.IoctlGetTermios(int(inside.Fd()), unix.TCGETS)
			harness.Must(t, err)
			if *after != *before {
				t.Errorf("the mode is %+v, was %+v", after, before)
			}
			_, err = outside.WriteString("\n") // for who still reads a key
			harness.Must(t, err)
			inside.Close()
			shown := readAll(outside)
			if !strings.Contains(shown, enterScreen) || !strings.Contains(shown[strings.LastIndex(shown, enterScreen):], leaveScreen) {
				t.Errorf("%q", shown)
			}
		})
	}
}

// Each line is erased before it is written: once its last cell is written, the cursor is on that cell.
func TestLastCell(t *testing.T) {
	t.Parallel()
	outside, inside := harness.OpenTerminal(t)
	harness.Must(t, (&terminal{in: inside, out: inside}).draw("wide enough\nnext\n", 5))
	inside.Close()
	if shown := readAll(outside); shown != home+eraseLine+"wide enough\r\r\n"+eraseLine+"next"+eraseBelow {
		t.Errorf("%q", shown)
	}
}

func panicOf(do func()) (what string) {
	defer func() { what, _ = recover().(string) }()
	do()
	return ""
}

// readAll reads a terminal's output; the end of the other side is an error here.
func readAll(outside *os.File) string {
	text, _ := io.ReadAll(outside)
	return string(text)
}
