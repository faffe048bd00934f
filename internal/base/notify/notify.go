// Package notify reports the state of this process to the service manager that started it, such as systemd, by the
// protocol sd_notify.
package notify

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// Manager is a service manager that wants to be notified. A nil Manager gets nothing.
type Manager struct {
	address  string
	watchdog bool
}

// New returns the manager of an environment ($NOTIFY_SOCKET), nil if it has none. $WATCHDOG_USEC and $WATCHDOG_PID
// say whether this process must feed a watchdog.
func New(getenv func(string) string) *Manager {
	address := getenv("NOTIFY_SOCKET")
	if address == "" {
		return nil
	}
	pid := getenv("WATCHDOG_PID")
	return &Manager{address, getenv("WATCHDOG_USEC") != "" && (pid == "" || pid == strconv.Itoa(os.Getpid()))}
}

// Ready reports that the service has started.
func (m *Manager) Ready() error { return m.send("READY=1") }

// Stopping reports that the service begins to end.
func (m *Manager) Stopping() error { return m.send("STOPPING=1") }

// Reload calls do, and reports that the service reloads meanwhile and is ready again afterwards.
func (m *Manager) Reload(do func()) {
	if m == nil {
		do()
		return
	}
	// Without the manager's attention the reload still happens.
	_ = m.send(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", monotonic().Microseconds()))
	do()
	_ = m.Ready()
}

// Watched returns whether the manager has a watchdog, and ends the service when that is not fed.
func (m *Manager) Watched() bool { return m != nil && m.watchdog }

// Feed feeds the watchdog.
func (m *Manager) Feed() error { return m.send("WATCHDOG=1") }

// sendTimeout is how long the manager may take to accept a message.
const sendTimeout = time.Second

func (m *Manager) send(state string) error {
	if m == nil {
		return nil
	}
	// An address that begins with @ is an abstract one, for package net as for the protocol.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: m.address, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(state))
	return err
}
