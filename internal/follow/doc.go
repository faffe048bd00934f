// Package follow keeps up with files that are replaced while a process runs: rules, credentials,
// certificates. It is the only package that reads them, because a file may hang (a mount that is
// gone): every read runs on a goroutine of its own, at most one for each File, and nobody waits for
// it without a bound.
//
// A File has what the last valid content said. There are two ways to keep it up to date:
//
//   - A server adds it to a Set, which looks at all of its files once a second. Current never waits.
//     Changed content counts when two looks in a row have found the same, so that a file that is
//     being written is not taken for a complete one. Content that is invalid, or cannot be read,
//     leaves the last valid one in use, and is reported.
//   - A client calls Fresh when it needs the content. That looks at once, waits briefly, and takes
//     what is valid.
package follow
