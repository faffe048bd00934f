package handlers

import (
	"context"
	"encoding/base64"
	"errors"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
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
	if page.Limit > largePage {
		memory := pageMemory.Get().(*[maxLimit + 1]claim.Claim)
		page.Into = memory[:]
		defer func() {
			clear(memory[:])
			pageMemory.Put(memory)
		}()
	}
	claims, err := h.Store.Live(ctx, db.LiveOf{Held: &t}, page)
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

// decodeFetchAll returns the type and the page to read: one claim more than the page's limit, to see whether there is
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
	budget, n := db.Budget(pageBytes), 0
	for n < min(limit, len(claims)) && budget.Take(&claims[n]) {
		n++
	}
	page := newAnswer(n)
	for i, resource := range page.GetResources() {
		encodeInto(resource, &claims[i])
	}
	if n < len(claims) {
		page.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(claims[n-1].ID))
	}
	return page
}

// encodeHeld returns all claims in one answer.
func encodeHeld(claims []claim.Claim) (*models.FetchAllResponse, error) {
	read := db.Budget(maxRead)
	for i := range claims {
		if !read.Take(&claims[i]) {
			return nil, errAnswerTooLarge
		}
	}
	all := newAnswer(len(claims))
	for i, resource := range all.GetResources() {
		encodeInto(resource, &claims[i])
	}
	if proto.Size(all) > maxAnswer {
		return nil, errAnswerTooLarge
	}
	return all, nil
}

// largePage is the number of claims above which a page's memory is used again. A list of all locks has pages of
// maxLimit, and the garbage of its pages would add up to the size of the list.
const largePage = 100

var (
	pageMemory = sync.Pool{New: func() any { return new([maxLimit + 1]claim.Claim) }}
	sentPages  = sync.Pool{New: func() any { return newResources(maxLimit) }}
)

// newAnswer returns an answer with n empty resources.
func newAnswer(n int) *models.FetchAllResponse {
	if n <= largePage || n > maxLimit {
		return newResources(n)
	}
	page := sentPages.Get().(*models.FetchAllResponse)
	page.Resources = page.GetResources()[:n]
	return page
}

func newResources(n int) *models.FetchAllResponse {
	block, list := make([]models.Resource, n), make([]*models.Resource, n)
	for i := range list {
		list[i] = &block[i]
	}
	return &models.FetchAllResponse{Resources: list}
}

// Sent uses the memory of an answer for the next one. Nobody may use the message after the call.
func Sent(message any) {
	page, is := message.(*models.FetchAllResponse)
	if !is || cap(page.GetResources()) != maxLimit {
		return
	}
	for _, resource := range page.GetResources() {
		resource.Reset()
	}
	list := page.GetResources()
	page.Reset()
	page.Resources = list
	sentPages.Put(page)
}
