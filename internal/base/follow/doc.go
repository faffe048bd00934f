// Package follow keeps up with files that are replaced while a process runs: rules, credentials, certificates. Only this
// package reads them, because a read may hang (a mount that is gone). Every read runs on a goroutine of its own, at most
// one for each File, and every wait for it has a bound.
//
// A File has the value of its last valid content. There are two ways to keep it up to date:
//
// A server adds it to a Set, which looks at all of its files once a second. Current never waits. Changed content is used
// when two looks in a row have found the same, so that a file that is being written is not used. If the content is
// invalid or cannot be read, the last valid one stays in use, and the error is reported.
//
// A client calls Fresh when it needs the content. That looks at once, waits up to a second, and uses content that is
// valid.
package follow
