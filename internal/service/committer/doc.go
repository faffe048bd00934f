// Package committer commits requests to the store in groups. Requests that arrive during a transaction form the next
// one: one read of their queues, the rules for each request, one write, one commit, and then the answers. There is
// one Committer in a process. A Listener gets the changes of its transactions.
package committer
