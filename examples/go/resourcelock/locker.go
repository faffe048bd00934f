package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
)

// ErrLocked is returned by Lock when others have locked the resource.
var ErrLocked = errors.New("locked by others")

// ttl is how long a lock lasts unless it is renewed or released.
const ttl = 30 * 24 * time.Hour

// modes are the modes of the two types of lock.
var modes = map[string]models.Mode{"read": models.Mode_MODE_SHARED, "write": models.Mode_MODE_EXCLUSIVE}

// Locker locks resources: for one writer, or for many readers.
type Locker struct{ client models.LocketClient }

// Lock returns a new lock, or ErrLocked.
func (l Locker) Lock(ctx context.Context, client, resource, lockType string) (*models.Claim, error) {
	mode, known := modes[lockType]
	if !known {
		return nil, fmt.Errorf("unknown type of lock %q", lockType)
	}
	claim, err := l.client.CreateClaim(ctx, &models.CreateClaimRequest{
		Owner: client, Resource: resource, Mode: mode, Ttl: proto.Float64(ttl.Seconds()), NoWait: true,
	})
	if status.Code(err) == codes.AlreadyExists {
		holder := models.ErrorInfoOf(err).GetMetadata()["holder"]
		return nil, fmt.Errorf("%s: %w (%s)", resource, ErrLocked, holder)
	}
	return claim, err
}

// Unlock ends a lock. Ending it twice is not an error.
func (l Locker) Unlock(ctx context.Context, id string) error {
	_, err := l.client.UpdateClaim(ctx, &models.UpdateClaimRequest{Id: id, Status: models.Status_STATUS_RELEASED})
	return err
}

// Locks returns the locks of a client, on a resource, of a type; "" matches any.
func (l Locker) Locks(ctx context.Context, client, resource, lockType string) (locks []*models.Claim, err error) {
	request := &models.ListClaimsRequest{Status: []models.Status{models.Status_STATUS_ACTIVE}}
	if client != "" {
		request.Owner = &client
	}
	if resource != "" {
		request.Resource = &resource
	}
	if mode, known := modes[lockType]; known {
		request.Mode = &mode
	}
	for {
		page, err := l.client.ListClaims(ctx, request)
		if err != nil {
			return nil, err
		}
		locks = append(locks, page.GetClaims()...)
		if request.PageToken = page.GetNextPageToken(); request.GetPageToken() == "" {
			return locks, nil
		}
	}
}

func typeOf(lock *models.Claim) string {
	if lock.GetMode() == models.Mode_MODE_SHARED {
		return "read"
	}
	return "write"
}
