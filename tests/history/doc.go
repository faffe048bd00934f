// Package history checks recorded histories against the final claims of the store: the requests of clients to real
// servers with their times, the answers, and the events.
//
// Every claim in the store has the versions of its changes: when it joined the queue, when it was
// granted, when it ended. A resource has one order of versions, so these are the changes of each
// resource in their order: the history's witness. Check walks along it once. It
// has the rules of package claim make each change again, by the request that asked for it, and
// compares claims, versions and tokens; there is no second model. Requests that changed nothing are
// executed by the same rules, in the first state that gives the answer which the client saw. So each request gets a place, between its call and its return, and in the same order as
// requests that came one after the other (linearizability). There is nothing to search: the check
// takes time in proportion to the history, and always decides.
//
//   - A request that was never answered has happened if the store has a change that only it
//     explains, and has not otherwise. A renewal that was not answered may have happened.
//   - Nobody asks for the end of a lease, of a wait (wait TTL), or of a silent session. Such an end is a change like others. It must not be early: no client may see it
//     sooner than the TTL after the call of the last renewal, or of the request that granted, or
//     after the last OPEN or heartbeat that was acknowledged.
//   - The events of a session or a watch must be in the witness, each change once, in order, and without a gap
//     (CheckStream, CheckWatch).
package history
