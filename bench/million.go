package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
)

// million measures a server with many claims: its start, 256 callers, its memory after that, and a list of all claims.
func (l *lab) million() (result, error) {
	if l.full == "" {
		folder := filepath.Join(l.folder, "million")
		fmt.Fprintf(os.Stderr, "making %d live and %d finished claims, and a line of %d\n", l.size.claims, l.size.claims, l.size.line)
		if err := replica.Fill(folder, func(to backup.Sink) error { return fill(to, l.size) }); err != nil {
			return nil, err
		}
		l.full = folder
	}
	s, err := l.start("locket", l.full)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	found, err := l.drive("load-unary", 256, l.duration, s)
	if err != nil {
		return nil, err
	}
	found[start] = s.took.Seconds()
	pid := s.cmd.Process.Pid
	if found[memory], err = mebibytes(pid, "VmRSS"); err != nil {
		return nil, err
	}
	if err := resetPeak(pid); err != nil {
		return nil, err
	}
	if err := listAll(s.address, l.size.claims); err != nil {
		return nil, err
	}
	peak, err := mebibytes(pid, "VmHWM")
	found[listing] = max(0, peak-found[memory])
	return found, err
}

// longTTL is the TTL of claims that nobody renews.
const longTTL = 24 * time.Hour

// fill writes the data of a server with many claims to a sink.
func fill(to backup.Sink, size sizes) error {
	now := claim.Time(time.Now().UnixMicro())
	const floor = 1_800_000_000_000_000
	head := backup.Head{Engine: "bench", Taken: now, Lease: now, Floor: floor}
	if err := to.Begin(head); err != nil {
		return err
	}
	base := claim.Claim{
		Owner: "cell-0123", Type: claim.Lock, TTL: longTTL, Value: "10.0.0.1:8080", Created: now,
		Status: claim.Active, Activated: now, Deadline: now.Add(longTTL), Enqueued: floor + 1, Token: floor + 2, Version: floor + 2,
	}
	add := func(resource string) error {
		c := base
		c.ID, c.Resource = ids.NewClaim(), resource
		return to.Claim(&c)
	}
	if err := add(line); err != nil {
		return err
	}
	for i := range size.line {
		c := base
		c.ID, c.Resource, c.Status, c.Token, c.Activated, c.Deadline = ids.NewClaim(), line, claim.Waiting, 0, 0, 0
		c.Enqueued = floor + 3 + uint64(i)
		c.Version = c.Enqueued
		if err := to.Claim(&c); err != nil {
			return err
		}
	}
	for i := range size.claims {
		if err := add(service(i)); err != nil {
			return err
		}
	}
	for i := range size.claims {
		c := base
		c.ID, c.Resource, c.Status, c.Finished = ids.NewClaim(), fmt.Sprintf("finished/%07d", i), claim.Released, now
		c.Enqueued, c.Token, c.Version, c.Deadline = 1, 2, 3, 0
		if err := to.Ended(&c); err != nil {
			return err
		}
	}
	if err := to.Row(backup.Row{Row: claim.Row{Resource: line, Version: floor + 3 + uint64(size.line)}}); err != nil {
		return err
	}
	for i := range size.claims {
		if err := to.Row(backup.Row{Row: claim.Row{Resource: service(i), Version: floor + 2}}); err != nil {
			return err
		}
	}
	return to.End(head)
}

// line is the resource with many waiting claims; its name sorts before the others.
const line = "line"

func service(i int) string { return fmt.Sprintf("service/%07d", i) }

// listAll lists all locks, page by page.
func listAll(address string, atLeast int) error {
	clients, err := loadFlags{addresses: list{address}, connections: 1}.dial()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	limit, listed := uint32(1000), 0
	for request := (&models.FetchAllRequest{TypeCode: models.TypeCode_LOCK, Limit: &limit}); ; {
		page, err := clients[0].FetchAll(ctx, request)
		if err != nil {
			return err
		}
		listed += len(page.GetResources())
		if request.PageToken = page.GetNextPageToken(); request.GetPageToken() == "" {
			break
		}
	}
	if listed < atLeast {
		return fmt.Errorf("%d locks are listed, want %d", listed, atLeast)
	}
	return nil
}
