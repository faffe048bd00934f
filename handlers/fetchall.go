package handlers

import (
	"context"
	"encoding/base64"
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
	"github.com/locket-service/locket/models"
)

const (
	// maxAnswer is the default message limit of a gRPC client, in bytes.
	maxAnswer = 4 << 20
	// maxRead limits the bytes that FetchAll without a limit reads. That includes the user data, which it does not
	// return.
	maxRead = 16 << 20
)

var errAnswerTooLarge = errors.New("the answer would have more than 4 MiB; ask with a limit, page by page")

// FetchAll implements models.LocketServer.
func (h *handler) FetchAll(ctx context.Context, req *models.FetchAllRequest) (*models.FetchAllResponse, error) {
	t, page, err := decodeFetchAll(req)
	if err != nil {
		return nil, h.lockError(ctx, err)
	}
	claims, err := h.store.Held(ctx, t, page)
	if err != nil {
		return nil, h.lockError(ctx, err)
	}
	if page.Limit > 0 {
		return encodeHeldPage(claims, page.Limit-1), nil
	}
	all, err := encodeHeld(claims)
	if err != nil {
		return nil, h.lockError(ctx, err)
	}
	return all, nil
}

// decodeFetchAll returns what to read. For a page that is one claim more than its limit, to see whether there is
// another page.
func decodeFetchAll(req *models.FetchAllRequest) (claim.Type, db.Page, error) {
	t, err := lockType("type", req.GetTypeCode(), req.GetType())
	switch {
	case err != nil:
		return 0, db.Page{}, err
	case t == claim.Untyped:
		return 0, db.Page{}, wrongType("type")
	}
	var c check
	if req.Limit == nil {
		c.that(req.GetPageToken() == "", "page_token", "goes together with a limit only")
		return t, db.Page{Bytes: maxRead}, c.err()
	}
	page := db.Page{Limit: c.limit(req.Limit, 0) + 1, Bytes: pageBytes}
	if req.GetPageToken() != "" {
		id, err := base64.RawURLEncoding.DecodeString(req.GetPageToken())
		page.After = string(id)
		c.that(err == nil && validID(page.After), "page_token", "invalid page token")
	}
	return t, page, c.err()
}

// encodeHeldPage returns a page of at most limit claims. One more claim than limit means that there is another page.
func encodeHeldPage(claims []claim.Claim, limit int) *models.FetchAllResponse {
	page := &models.FetchAllResponse{}
	budget := db.Budget(pageBytes)
	for i := range claims {
		if i == limit || !budget.Take(&claims[i]) {
			page.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(claims[i-1].ID))
			break
		}
		page.Resources = append(page.Resources, encodeResource(&claims[i]))
	}
	return page
}

// encodeHeld returns all claims in one answer.
func encodeHeld(claims []claim.Claim) (*models.FetchAllResponse, error) {
	all := &models.FetchAllResponse{Resources: make([]*models.Resource, len(claims))}
	read := db.Budget(maxRead)
	for i := range claims {
		if !read.Take(&claims[i]) {
			return nil, errAnswerTooLarge
		}
		all.Resources[i] = encodeResource(&claims[i])
	}
	if proto.Size(all) > maxAnswer {
		return nil, errAnswerTooLarge
	}
	return all, nil
}
