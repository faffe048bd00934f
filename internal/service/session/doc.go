// Package session has the sessions that are attached to this server: their claims, their commands, and the events for
// their clients. It does not know gRPC; package handlers has the stream.
//
// The database is authoritative: the row of a session names the one server that it is attached to. A Manager attaches a
// session with Open. It detaches the session when its stream breaks, or when its client has sent nothing for half of
// its TTL.
//
//	                 Open                           the stream broke, silence
//	(no session) ─────────► attached to this server ──────────────────────────► detached
//	                          ▲  │        │   │                                 │   │
//	                    Open  └──┘        │   └── attached elsewhere: ErrMoved  │   │ TTL
//	                 (another stream)     ▼                                     │   ▼
//	                         Close, reset: ended ◄──────────────────────────────┘ ended
//
// The beats of the committer keep the sessions of this server alive, under a name that other servers see. When a server
// has not beaten for too long, another server declares it gone. From then on its beats fail (db.ErrServerGone); the
// Manager ends all sessions with ErrDetached, and takes a new name for the next one. A heartbeat of a client is
// answered after a beat that began after the heartbeat arrived, if the session is still attached here after that.
//
// An Attached runs the commands about one resource one after the other, and commands about different resources
// concurrently, in the batches of the committer. UNLOCK_ALL and CLOSE wait for the commands before them, and the
// commands after them wait for them. A change that this server commits reaches the Attached before its command is
// answered. Changes by other servers come from the feed: late, in any order, and possibly more than once.
//
// A session has at most one live claim of a resource, and the versions that it sends to the client rise. Only its own
// commands make its claims, so it knows all of them; a change of a claim that it does not know is old, and is ignored.
// A change of the claim that a running command makes or ends is sent with the answer to this command, or after it.
// After a gap in the feed, or a commit with an unknown outcome, the session reads its claims again, so that it knows
// all of them.
package session
