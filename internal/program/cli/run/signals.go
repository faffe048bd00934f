package run

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// deadlySignals end a program that does nothing about them.
var deadlySignals = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

func deadly(sig os.Signal) bool { return slices.Contains(deadlySignals, sig) }

// ignoredSignals were ignored when the program began, and stay so for the command too: nohup ignores HUP, and a shell without job control
// ignores INT and QUIT for commands in the background. (Of QUIT and the others Go does not say.)
var ignoredSignals = func() (ignored []os.Signal) {
	if signal.Ignored(syscall.SIGHUP) {
		ignored = append(ignored, syscall.SIGHUP)
	}
	if signal.Ignored(syscall.SIGINT) {
		ignored = append(ignored, syscall.SIGINT, syscall.SIGQUIT)
	}
	return ignored
}()

// catchSignals returns the signals that this process gets: the deadly ones, and from catchJobSignals on others too.
func catchSignals() chan os.Signal {
	signals := make(chan os.Signal, 100)
	for _, sig := range deadlySignals {
		if slices.Contains(ignoredSignals, sig) {
			signal.Ignore(sig)
		} else {
			signal.Notify(signals, sig)
		}
	}
	signal.Notify(signals, syscall.SIGPIPE) // else an error message that nobody reads would end the process
	return signals
}

// catchJobSignals adds the signals that are for the command. Before the command is being started they do what they do to any program that
// waits.
func catchJobSignals(signals chan<- os.Signal) {
	signal.Notify(signals, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT)
}

// useTerminal lets this process, in the background, choose who has the terminal. Call it when the command runs, which would inherit it.
func useTerminal() { signal.Ignore(syscall.SIGTTOU) }

// catchChildren returns a channel that says when children have ended, or were stopped. Other signals do nothing to this process.
func catchChildren() <-chan os.Signal {
	catchSignals()
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	return children
}
