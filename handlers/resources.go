package handlers

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/access"
	"github.com/locket-service/locket/internal/claim"
	"github.com/locket-service/locket/models"
)

const defaultResources = 100 // on one page

// ListResources implements models.LocketServer.
func (h *handler) ListResources(ctx context.Context, req *models.ListResourcesRequest) (*models.ListResourcesResponse, error) {
	page, err := decodeResources(req)
	if err == nil {
		err = h.fill(ctx, page)
	}
	if err != nil {
		return nil, h.wireError(ctx, err)
	}
	return page.answer, nil
}

// resourcePage is a page of resources while it is filled.
type resourcePage struct {
	prefix string
	limit  int
	// contended orders the resources by their number of waiting claims, the highest first. Resources without waiting
	// claims come last, by name.
	contended bool
	// read is the place after the last resource that was read, shown the place after the last resource on the page.
	read, shown resourcePlace

	answer *models.ListResourcesResponse
	bytes  int
	seen   int
}

// resourcePlace is a place in a list of resources: after a resource with waiting claims, or after a name.
type resourcePlace struct {
	contention *db.Contention
	// others reports whether all resources with waiting claims come before the place.
	others bool
	name   string
}

// token returns the page token of a place. It contains the order too.
func (p *resourcePage) token(at resourcePlace) string {
	text := "n" + at.name
	switch {
	case p.contended && at.others:
		text = "o" + at.name
	case p.contended:
		text = fmt.Sprintf("c%d %s", at.contention.Waiting, at.contention.Resource)
	}
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

func decodeResources(req *models.ListResourcesRequest) (*resourcePage, error) {
	var c check
	_, known := models.ResourceOrder_name[int32(req.GetOrder())]
	c.that(known, "order", "unknown order %d", req.GetOrder())
	c.text("prefix", req.GetPrefix())
	page := &resourcePage{
		prefix: req.GetPrefix(), limit: c.limit(req.Limit, defaultResources),
		contended: req.GetOrder() == models.ResourceOrder_RESOURCE_ORDER_CONTENDED, answer: &models.ListResourcesResponse{},
	}
	page.read.others = !page.contended
	if req.GetPageToken() != "" {
		c.that(page.begin(req.GetPageToken()), "page_token", "invalid page token, or one of a list in another order")
	}
	return page, c.err()
}

// begin sets the place of a page token, and reports whether the token is valid for the page's order.
func (p *resourcePage) begin(token string) bool {
	bytes, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(bytes) == 0 {
		return false
	}
	kind, text := bytes[0], string(bytes[1:])
	var name check
	switch {
	case kind == 'n' && !p.contended, kind == 'o' && p.contended:
		p.read = resourcePlace{others: true, name: text}
		name.text("", text)
	case kind == 'c' && p.contended:
		waiting, resource, _ := strings.Cut(text, " ")
		n, err := strconv.ParseUint(waiting, 10, 31)
		if err != nil {
			return false
		}
		p.read.contention = &db.Contention{Waiting: int(n), Resource: resource}
		name.name("", resource)
	default:
		return false
	}
	return name.err() == nil
}

// fill reads resources until the page is full or there are no more.
func (h *handler) fill(ctx context.Context, p *resourcePage) error {
	caller := access.CallerOf(ctx)
	for size := p.limit + 1; ; size = min(2*size, readAtOnce) {
		more, err := h.fillSome(ctx, caller, p, min(size, readAtOnce))
		if err != nil || !more {
			return err
		}
		if p.seen += size; p.seen > maxHidden {
			if restricted(caller) { // the place may reveal a name that the caller must not see
				return hidden(p.seen)
			}
			p.answer.NextPageToken = p.token(p.read)
			return nil
		}
	}
}

// fillSome reads some resources into the page, and reports whether to read more.
func (h *handler) fillSome(ctx context.Context, caller access.Caller, p *resourcePage, size int) (more bool, err error) {
	if !p.read.others {
		list, now, err := h.store.Contended(ctx, p.prefix, p.read.contention, size)
		if err != nil {
			return false, err
		}
		for i := range list {
			p.read.contention = &db.Contention{Waiting: list[i].Waiting, Resource: list[i].Resource}
			if !p.add(caller, &list[i], p.read, now) {
				return false, nil
			}
		}
		p.read.others = len(list) < size
		return true, nil
	}
	list, next, now, err := h.store.Resources(ctx, p.prefix, p.read.name, size)
	if err != nil {
		return false, err
	}
	for i := range list {
		if p.contended && list[i].Waiting > 0 {
			continue
		}
		if !p.add(caller, &list[i], resourcePlace{others: true, name: list[i].Resource}, now) {
			return false, nil
		}
	}
	p.read.name = next
	return next != "", nil
}

// add adds a resource to the page if the caller may read it. If the page is full, it sets the token of the next page
// and returns false.
func (p *resourcePage) add(caller access.Caller, r *db.Resource, place resourcePlace, now claim.Instant) bool {
	if caller.Need(access.Read, r.Resource) != nil {
		return true
	}
	if len(p.answer.GetResources()) == p.limit || p.bytes > pageBytes {
		p.answer.NextPageToken = p.token(p.shown)
		return false
	}
	encoded := encodeResourceInfo(r, now)
	p.bytes += proto.Size(encoded)
	p.answer.Resources = append(p.answer.Resources, encoded)
	p.shown = place
	return true
}

func encodeResourceInfo(r *db.Resource, now claim.Instant) *models.ResourceInfo {
	encoded := &models.ResourceInfo{
		Resource: r.Resource, Version: r.Version, Holding: uint32(max(r.Shared, 1)), Holder: encodeClaim(&r.First, now), Waiting: uint32(r.Waiting),
	}
	if r.WaitsSince > 0 {
		encoded.OldestWait = proto.Float64(max(0, now.Wall.Sub(r.WaitsSince)).Seconds())
	}
	return encoded
}
