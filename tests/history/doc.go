// Package history checks recorded histories: what clients asked of real servers, when,
// and what they were answered. A history is accepted when its operations can be put into
// one order, each between its call and its return, in which the rules of package claim
// give the very answers that the clients saw (linearizability). There is no second model:
// porcupine searches for the order, and claim.Queue answers.
//
// What clients cannot know stays open:
//
//   - The instant of a transaction. The rules count versions from 1; a version or token in
//     an answer stands for one of theirs. Both must have the same order, so tokens rise,
//     are kept by renewals and are new with each grant.
//   - The outcome of a request that was never answered. It is open until the history ends
//     and explains itself with any answer, so that it may as well never have happened.
//   - When a lease runs out. Expire is an operation that nobody asked for. The rules get
//     the earliest instants that the history allows, so that they find a lease too young
//     whose expiry cannot be right: the time from the last renewal's call, or that of the
//     request that granted, to an answer given afterwards is shorter than the TTL. So it is with
//     the waits of claims with a wait TTL.
//   - When a session of which no server has heard ends. Lapse is an operation that nobody asked for,
//     never before the sending of the last heartbeat that was acknowledged, and the TTL. A session that
//     ends does so in the history of each resource that it asked for.
package history
