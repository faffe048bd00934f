// Package session has the sessions that are attached to this server: what each holds and waits
// for, its commands, and the events for its client. It knows no gRPC; package handlers has the
// stream.
//
// The database is authoritative: a session is attached to one server, by its row. A Manager
// attaches a session with Open, and detaches it when its stream breaks, or when nothing was heard
// from it for half of its TTL.
//
//	                 Open                           the stream broke, silence
//	(no session) ─────────► attached to this server ──────────────────────────► detached
//	                          ▲  │        │   │                                 │   │
//	                    Open  └──┘        │   └── attached elsewhere: ErrMoved  │   │ TTL
//	                 (another stream)     ▼                                     │   ▼
//	                         Close, reset: ended ◄──────────────────────────────┘ ended
//
// The server keeps its sessions alive with the beats of its committer, under a name that other
// servers see. When it was silent for too long, another server declares it gone: then no beat
// counts any more (db.ErrServerGone), the Manager sends all sessions away, and takes a new name for
// the next. A heartbeat of a client is answered after a beat that began after it came.
//
// An Attached carries out the commands about one resource one after the other, and those about
// different resources side by side, in the batches of the committer. UNLOCK_ALL and CLOSE wait for
// the commands before them, and those after them wait. What this server commits reaches an
// Attached before its command is answered; what others commit comes from the feed, late and perhaps more
// than once. A session has one claim of a resource at a time, of which a version is told that is newer than
// the last. All its claims are made by its commands, so that it knows them: what is heard of others is old, and
// need not be remembered. What becomes of a claim that a command makes, or ends, is told by the answer to that, or
// after it. After a gap, or a commit whose outcome is not known, the claims are read again, so that no
// claim is left that the session does not know.
package session
