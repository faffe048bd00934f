// Package models is the wire contract of Locket over gRPC: the messages and the service of locket.proto, and the
// errors and reasons that a proto file cannot express. Clients and servers share it, so it imports only protobuf and
// gRPC. Published field numbers, codes and reasons never change.
//
// Package lock has clients that keep locks. A program that makes the calls itself dials with package lock/conn:
//
//	client := models.NewLocketClient(c) // c is from conn.Dial
//	ttl := 60.0                         // seconds
//	claim, err := client.CreateClaim(ctx, &models.CreateClaimRequest{Resource: "nightly", Owner: "me", Ttl: &ttl, Id: "nightly-1"})
//	claim, err = client.AwaitClaim(ctx, &models.AwaitClaimRequest{Id: "nightly-1"})             // until it is active
//	claim, err = client.UpdateClaim(ctx, &models.UpdateClaimRequest{Id: "nightly-1", Ttl: &ttl}) // renew
//	claim, err = client.EndClaim(ctx, &models.EndClaimRequest{Id: "nightly-1"})                  // release
//
// # Which call to use
//
//   - Lock, Release, Fetch, FetchAll: locks that never wait, as in Cloud Foundry's Locket.
//   - CreateClaim, AwaitClaim, UpdateClaim, EndClaim, GetClaim, ListClaims: claims that wait in a queue.
//   - Session: many locks over one stream, with one heartbeat. ListSessions, GetSession, EndSession, ResetSessions
//     administer sessions.
//   - GetQueue, ListResources, GetStatus, Watch: holders and waiters, and each change.
//   - WhoAmI, CanI: the caller's identity and rights.
//
// # Errors
//
// ReasonOf returns the reason of an error, one of the constants below. FromWire makes errors.Is(err, ErrLockCollision)
// work; connections of package lock/conn call it. Every call may be repeated safely: claims with the id that the
// client chose, locks with key and owner, renewals and releases with the token.
package models
