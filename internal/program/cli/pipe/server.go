package pipe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/keychain"
)

// Options configure a server of the pipe.
type Options struct {
	// Log gets what the client does not get.
	Log *slog.Logger
	// Notices: the client gets a notice of a claim that is lost, which no request has asked for.
	Notices bool
	// Parent is the program: its end ends the server, and it may be signalled when a claim is lost.
	Parent *Parent
	// ReleaseTimeout is how long giving everything back may take at the end, the same as the keychain has.
	ReleaseTimeout time.Duration
}

// Serve serves the client until it is done, or gone, or this process gets a signal, and gives back all its claims with kc. The error has
// the status to end with: exit.Failure if not everything was ended, exit.Signal and the number of the signal that ended it.
func Serve(ctx context.Context, kc *keychain.Keychain, o Options, requests io.Reader, answers io.Writer) error {
	return newServer(kc, o).run(ctx, requests, answers)
}

// server is a handler with all that can end it.
type server struct {
	Options
	handler *handler
	ends    chan end // gets what happens first; the others find it full
	signals chan os.Signal
}

// end is why a keychain ends.
type end struct {
	request *request       // to shut down
	signal  syscall.Signal // that it got
	// loses is why the client loses its claims, nil if it has given them up.
	loses error
	// failed is set when the claims end as aborted rather than as released.
	failed bool
}

func (e end) String() string {
	switch {
	case e.request != nil:
		return "the client has asked for it"
	case e.loses != nil:
		return e.loses.Error()
	default:
		return "the client is gone"
	}
}

func newServer(kc *keychain.Keychain, o Options) *server {
	s := &server{Options: o, ends: make(chan end, 1), signals: make(chan os.Signal, 4)}
	s.handler = &handler{
		keychain: kc, log: o.Log, notices: o.Notices, parent: o.Parent, claims: make(map[string]*entry),
		shutdown: func(r *request) { s.endWith(end{request: r}) },
	}
	return s
}

// endWith ends the keychain, unless something else has done so before.
func (s *server) endWith(why end) {
	select {
	case s.ends <- why:
	default:
	}
}

// run serves a client, and gives everything back when it is over.
func (s *server) run(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listen := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE}
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		listen = append(listen, syscall.SIGHUP)
	}
	signal.Notify(s.signals, listen...)
	defer signal.Stop(s.signals)

	h := s.handler
	h.out = newOutbox(stdout, func(err error) {
		s.endWith(end{failed: true, loses: fmt.Errorf("the keychain cannot answer any more: %w", err)})
	})
	go func() {
		if err := h.serve(newInput(stdin)); !errors.Is(err, io.EOF) {
			h.log.Warn("the requests end", "error", err)
		}
		s.endWith(end{})
	}()
	go func() {
		if h.parent.await(ctx) == nil {
			s.endWith(end{failed: true})
		}
	}()
	why := s.await()
	level := slog.LevelInfo
	if why.loses != nil {
		level = slog.LevelWarn
	}
	h.log.Log(ctx, level, "ending", "because", why.String())
	return s.finish(why)
}

// await returns the event that ends the keychain.
func (s *server) await() end {
	for {
		select {
		case why := <-s.ends:
			return why
		case got := <-s.signals:
			if sig := got.(syscall.Signal); sig != syscall.SIGPIPE { // which the writer gets as an error
				return end{signal: sig, failed: true, loses: fmt.Errorf("the keychain got %s", sig)}
			}
		}
	}
}

// finish gives everything back, within its time.
func (s *server) finish(why end) error {
	h := s.handler
	endAll := h.keychain.Close
	if why.failed {
		endAll = h.keychain.Abort
	}
	done := make(chan error, 1)
	go func() { done <- h.close(why.loses, endAll) }()
	err := s.awaitClose(done, why.signal != 0)
	if why.request != nil {
		h.answer(why.request, err, nil)
	}
	h.out.close(500 * time.Millisecond)
	switch {
	case err != nil:
		return exit.With(exit.Failure, err)
	case why.signal != 0:
		return exit.With(exit.Signal+int(why.signal), nil)
	}
	return nil
}

// awaitClose waits until everything is ended. A second signal ends it at once, and leaves the rest to its TTL. A first one does not, if the
// client's end came before it: whoever stops the client often stops its keychain too.
func (s *server) awaitClose(done <-chan error, signalled bool) error {
	timeout := time.After(s.ReleaseTimeout + 500*time.Millisecond) // the keychain has the same bound
	for {
		select {
		case err := <-done:
			return err
		case <-timeout:
			return errors.New("ending the claims takes too long; they are left to their TTL")
		case got := <-s.signals:
			if got == syscall.SIGPIPE {
				continue
			}
			if signalled {
				go func() { _ = s.handler.keychain.Abort() }()
			}
			signalled = true
		}
	}
}
