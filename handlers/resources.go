package handlers

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
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
	deadlocks := h.Deadlocks()
	for _, r := range page.answer.GetResources() {
		_, r.Deadlock = slices.BinarySearch(deadlocks, r.GetResource())
	}
	return page.answer, nil
}

// resourcePage is a page of resources while it is filled.
type resourcePage struct {
	prefix string
	limit  int
	// delimiter, unless it is empty, ends the names of folders. folderEnd is the last name that the last folder on the
	// page may have, and inFolder reports whether the last read ended before it.
	delimiter, folderEnd string
	inFolder             bool
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
	c.text("delimiter", req.GetDelimiter())
	page := &resourcePage{
		prefix: req.GetPrefix(), delimiter: req.GetDelimiter(), limit: c.limit(req.Limit, defaultResources),
		contended: req.GetOrder() == models.ResourceOrder_RESOURCE_ORDER_CONTENDED, answer: &models.ListResourcesResponse{},
	}
	c.that(page.delimiter == "" || !page.contended, "delimiter", "only in the order of names")
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

// readFolder is how many resources are read where a folder may follow: one of them is enough.
const readFolder = 20

// readNext returns how many resources to read next. last is how many were read before.
func (p *resourcePage) readNext(last int) int {
	switch {
	case p.inFolder, p.delimiter != "" && last == 0:
		return readFolder
	case last == 0:
		return min(p.limit+1, readAtOnce)
	}
	return min(2*last, readAtOnce)
}

// fill reads resources until the page is full or there are no more.
func (h *handler) fill(ctx context.Context, p *resourcePage) error {
	caller := access.CallerOf(ctx)
	for size := p.readNext(0); ; size = p.readNext(size) {
		more, err := h.fillSome(ctx, caller, p, size)
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
		list, now, err := h.Store.Contended(ctx, p.prefix, p.read.contention, size)
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
	list, next, now, err := h.Store.Resources(ctx, p.prefix, p.read.name, size)
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
	if p.inFolder = next != "" && next <= p.folderEnd; p.inFolder {
		p.read.name = p.folderEnd
	}
	return next != "", nil
}

// folderOf returns the folder that a resource is in, "" if it is in none.
func (p *resourcePage) folderOf(name string) string {
	before, _, found := strings.Cut(name[len(p.prefix):], p.delimiter)
	if p.delimiter == "" || !found {
		return ""
	}
	return p.prefix + before + p.delimiter
}

// add adds a resource, or its folder, to the page if the caller may read it. If the page is full, it sets the token of
// the next page and returns false.
func (p *resourcePage) add(caller access.Caller, r *db.Resource, place resourcePlace, now claim.Instant) bool {
	if r.Resource <= p.folderEnd || caller.Need(access.Read, r.Resource) != nil {
		return true
	}
	if len(p.answer.GetResources()) == p.limit || p.bytes > pageBytes {
		p.answer.NextPageToken = p.token(p.shown)
		return false
	}
	encoded := encodeResourceInfo(r, now)
	if folder := p.folderOf(r.Resource); folder != "" {
		encoded = &models.ResourceInfo{Resource: folder, Folder: true}
		p.folderEnd = db.LastName(folder)
		place.name = p.folderEnd
	}
	p.bytes += proto.Size(encoded)
	p.answer.Resources = append(p.answer.Resources, encoded)
	p.shown = place
	return true
}

// encodeResourceInfo returns a resource as a list shows it. In a quarantine claims may wait for one that nobody holds.
func encodeResourceInfo(r *db.Resource, now claim.Instant) *models.ResourceInfo {
	encoded := &models.ResourceInfo{Resource: r.Resource, Version: r.Version, Waiting: uint32(r.Waiting)}
	if holding := max(r.Shared, min(len(r.Holder), 1)); holding > 0 {
		encoded.Holding, encoded.Holder = uint32(holding), encodeClaim(&r.First, now)
	}
	if r.WaitsSince > 0 {
		encoded.OldestWait = proto.Float64(max(0, now.Wall.Sub(r.WaitsSince)).Seconds())
	}
	return encoded
}
