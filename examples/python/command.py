"""Runs a command for no longer than a lease lasts, unless this program is stopped meanwhile (SIGSTOP, Ctrl-Z): then the
command ends when the program continues. claim.py, keychain.py and session.py use it: copy it along with them."""

import os
import signal
import subprocess
import sys
import time

# The guard runs a moment longer than this program: when this program has ended in any way, the pipe is
# closed, and the guard kills the process group of the command.
GUARD = 'read -r _; kill -s KILL -- "-$1"'
# The command begins when the guard runs: a line opens the gate, which stays closed if this program ends first.
GATE = 'gate=$1; shift; read -r _ <&"$gate" && exec "$@"'


def run(words, until, grace, env=None):
    """Runs a command, and returns its exit status, or None if it was stopped because until() is over.

    until() is up to when the resource is ours, by time.monotonic(). Then the command gets TERM, and KILL
    grace seconds later: before the lease ends, if until() leaves so much time. SIGINT and SIGTERM to this
    program stop the command in the same way. What the command has started is stopped with it, and also
    when the command has ended by itself: nothing runs on without the lock. Only what leaves the
    process group (setsid) is not found.
    """
    signals = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _: signals.append(got))
    gate, opener = os.pipe()
    command = subprocess.Popen(
        ["sh", "-c", GATE, "gate", str(gate), *words],
        env=env, pass_fds=[gate], start_new_session=True,  # a process group of its own
    )
    guard = subprocess.Popen(
        ["sh", "-c", GUARD, "guard", str(command.pid)],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True,
    )
    os.write(opener, b"\n")
    os.close(opener)
    os.close(gate)
    while command.poll() is None and not signals and time.monotonic() < until():
        time.sleep(0.05)
    status, kill_at = command.returncode, min(time.monotonic(), until()) + grace
    for number, deadline in (signal.SIGTERM, kill_at), (signal.SIGKILL, kill_at + 1):
        send(command, number)
        while send(command, 0) and time.monotonic() < deadline:
            time.sleep(0.01)
    guard.kill()
    guard.wait()
    guard.stdin.close()
    if status is None and signals:
        sys.exit("stopped")
    return 128 - status if status and status < 0 else status  # as a shell reports it


def send(command, number):
    """Sends a signal to a process group, 0 to none, and reports whether anything of it is left."""
    command.poll()  # until this call, a process that has ended still exists
    try:
        os.killpg(command.pid, number)
    except ProcessLookupError:
        return False
    return True
