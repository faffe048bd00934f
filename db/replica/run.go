package replica

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/disk"
)

// run is one run of a server in its folder. The file runName says which one used the folder last. Each run makes a new
// one, which contains its own disk.Identity, so a copy is recognised: the folder was copied, or a copy was written over it.
//
// While a server runs it reads the file once a second: when it is another one, the folder was overwritten, or a server
// on another machine, where the lock of the folder is not known, uses it too.
type run struct {
	number  uint64
	file    *os.File // locked
	content string
}

// runText is the content of the file before its checksum.
const runText = "locket run 1\nrun %d\nfile %s\npath %q\nmachine %s\n"

// lockRun locks the file of the last run, if there is one: so file systems do which lock for other machines.
func (f *folder) lockRun() error {
	file, err := f.held.Root.OpenFile(runName, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	f.run.file = file
	if err := lock(file, syscall.LOCK_EX); err != nil {
		return err
	}
	opened, err := file.Stat()
	if err != nil {
		return err
	}
	if found, err := f.held.Root.Stat(runName); err != nil || !os.SameFile(opened, found) { // a server has started meanwhile
		return fmt.Errorf("lock %s: %w", file.Name(), db.ErrInUse)
	}
	return nil
}

// checkRun finds out whether the folder is in the state that the last run left. If a copy may have replaced it,
// acknowledged changes may be missing, and checkRun sets rolledBack to the reason. It returns ErrFolder for a copy
// whose original may be in use.
func (f *folder) checkRun() error {
	if f.run.file == nil {
		f.rolledBack = fmt.Sprintf("%s is missing", f.file(runName))
		return nil
	}
	text, err := f.held.Root.ReadFile(runName)
	if err != nil {
		return err
	}
	var identity, path, machine string
	body, intact := summed(text)
	if n, err := fmt.Sscanf(body, runText, &f.run.number, &identity, &path, &machine); !intact || n != 4 || err != nil {
		return fmt.Errorf("%w: %s is damaged. Delete it, and the server starts as after a restore", ErrFolder, f.file(runName))
	}
	is, err := disk.Identity(f.run.file)
	if err != nil {
		return err
	}
	f.run.content = string(text)
	here := path == f.path && machine == thisMachine() && machine != noMachine
	switch {
	case is == identity && (here || !f.leftAt(path)):
		return nil
	case is == identity:
		return fmt.Errorf("%w: %s was moved here from %s, where a copy of it is: use one of them, and take the other away", ErrFolder, f.path, path)
	case here:
		f.rolledBack = "it was replaced by a copy"
		return nil
	}
	of := "machine " + machine
	if machine == noMachine {
		of = "a machine without an id in /etc/machine-id"
	}
	return fmt.Errorf("%w: %s is a copy of the folder %s of %s. If a server may still use the original, use only the original: two would grant the same locks. "+
		"If this is all there is, delete %s, and the server starts as after a restore", ErrFolder, f.path, path, of, f.file(runName))
}

// leftAt reports whether there is another folder of the same node at a path.
func (f *folder) leftAt(path string) bool {
	other := &folder{path: path}
	if err := other.readNode(); err != nil || other.node != f.node {
		return false
	}
	found, err := os.Stat(path)
	if err != nil {
		return false
	}
	self, err := f.held.Self.Stat()
	return err == nil && !os.SameFile(found, self)
}

// prepareRun writes the file of a new run, under another name. It does nothing the next time.
func (f *folder) prepareRun() (err error) {
	if f.next.file != nil {
		return nil
	}
	file, err := f.held.Root.OpenFile(runName+newSuffix, os.O_RDWR|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	identity, err := disk.Identity(file)
	if err == nil {
		err = lock(file, syscall.LOCK_EX)
	}
	next := run{number: f.run.number + 1, file: file}
	if err == nil {
		next.content = withSum(fmt.Sprintf(runText, next.number, identity, f.path, thisMachine()))
		_, err = file.WriteString(next.content)
	}
	if err == nil {
		err = file.Sync()
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	f.next = next
	return nil
}

// beginRun writes down that a new run uses the folder.
func (f *folder) beginRun() error {
	if err := f.prepareRun(); err != nil {
		return err
	}
	if err := errors.Join(f.held.Rename(runName+newSuffix, runName), f.held.Sync()); err != nil {
		return err
	}
	if f.run.file != nil {
		_ = f.run.file.Close() // nothing was written to it
	}
	f.run, f.next = f.next, run{}
	return nil
}

// verify returns an error when the folder is no longer this run's: the next server would not find this server's writes.
func (f *folder) verify() error {
	if err := f.stays(); err != nil {
		return err
	}
	if f.run.content == "" { // the run has not begun, and there was none before
		return nil
	}
	if text, err := f.held.Root.ReadFile(runName); err != nil || string(text) != f.run.content {
		return fmt.Errorf("%s was overwritten, emptied, or taken by another server while this one used it: %s is not as this server has written it", f.path, f.file(runName))
	}
	return nil
}

// stays is the part of verify that reads no file.
func (f *folder) stays() error {
	switch is, err := f.held.InPlace(); {
	case err != nil:
		return err
	case !is:
		return fmt.Errorf("%s was moved, deleted or replaced while the server used it; put it back", f.path)
	}
	return nil
}

// noMachine is the id of a machine without one.
const noMachine = "-"

// thisMachine returns the id of this machine.
func thisMachine() string {
	text, err := os.ReadFile("/etc/machine-id")
	if id := strings.TrimSpace(string(text)); err == nil && id != "" && !strings.ContainsAny(id, " \n") {
		return id
	}
	return noMachine
}
