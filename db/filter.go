package db

import (
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/locket-service/locket/internal/rules/claim"
)

// Filter says which claims List returns. A nil or zero field matches every claim; a
// bound on a duration does not match claims without that duration.
type Filter struct {
	Resource, Owner *string
	// Prefix is how the names of the resources begin.
	Prefix string
	Units  *claim.Units
	// Statuses are the allowed statuses; empty allows all.
	Statuses []claim.Status

	MinActive, MaxActive   *time.Duration
	MinWaiting, MaxWaiting *time.Duration
	// MinTTL and MaxTTL bound the time that an active claim without a session has left.
	MinTTL, MaxTTL         *time.Duration
	MinCreated, MaxCreated *claim.Time

	// Newest sorts the newest claims first.
	Newest bool
	// After leaves out this claim and those before it, in the order of the list.
	After *Cursor
	// Limit is the number of claims to return; Offset are left out before them.
	Limit, Offset int
	// Bytes bounds the memory of the answer, see Budget; 0 for no bound.
	Bytes int
}

// Cursor is a claim's place in the order of List.
type Cursor struct {
	Created claim.Time
	ID      string
}

// Live reports whether the filter matches live claims only.
func (f *Filter) Live() bool {
	return len(f.Statuses) > 0 && !slices.ContainsFunc(f.Statuses, claim.Status.Final)
}

// Bounded reports whether the filter bounds a duration.
func (f *Filter) Bounded() bool {
	return f.MinActive != nil || f.MaxActive != nil || f.MinWaiting != nil || f.MaxWaiting != nil || f.MinTTL != nil || f.MaxTTL != nil
}

// PrefixEnd returns a name that comes, as bytes, after all that begin with a prefix, and before all others that
// come after it.
func PrefixEnd(prefix string) string {
	for prefix != "" {
		last, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		if last++; last == 0xD800 { // the first surrogate, which UTF-8 cannot encode
			last = 0xE000
		}
		if last <= utf8.MaxRune {
			return prefix + string(last)
		}
	}
	return strings.Repeat(string(utf8.MaxRune), 257) // longer than any name
}

// LastName returns the last name, as bytes, that begins with a prefix. Resources goes on after it behind all names with
// the prefix.
func LastName(prefix string) string {
	left := max(0, MaxName-len(prefix))
	return prefix + strings.Repeat(string(utf8.MaxRune), left/utf8.UTFMax) + [utf8.UTFMax]string{"", "\x7f", "\u07ff", "\uffff"}[left%utf8.UTFMax]
}

// MaxName is the maximum number of bytes of a resource's name.
const MaxName = 1024

// SQL spellings of a claim's durations, in microseconds, NULL where it has none. The
// placeholder is the database's time.
const (
	activeForSQL  = "(CASE WHEN activated = 0 THEN NULL WHEN status > 2 THEN finished - activated ELSE ? - activated END)"
	waitingForSQL = "(CASE WHEN activated > 0 THEN activated - created WHEN status > 2 THEN finished - created ELSE ? - created END)"
	ttlLeftSQL    = "(CASE WHEN status = 2 AND session = '' THEN deadline - ? END)"
)

// SQL returns a filter as the part after "SELECT … FROM claims" in an engine that speaks SQL, with its arguments:
// each an int64, an int, a uint8 or a string. The engine must compare names as bytes. More conditions, without
// arguments, come last.
func (f *Filter) SQL(now claim.Instant, more ...string) (clause string, args []any) {
	var c conditions
	f.where(&c, now)
	order, after := "created, id", "created >= ? AND (created > ? OR id > ?)"
	if f.Newest {
		order, after = "created DESC, id DESC", "created <= ? AND (created < ? OR id < ?)"
	}
	if f.After != nil {
		at := int64(f.After.Created)
		c.add(after, at, at, f.After.ID)
	}
	if c.texts = append(c.texts, more...); len(c.texts) > 0 {
		clause = " WHERE " + strings.Join(c.texts, " AND ")
	}
	limit := f.Limit
	if limit == 0 {
		limit = math.MaxInt32
	}
	return clause + " ORDER BY " + order + " LIMIT ? OFFSET ?", append(c.args, limit, f.Offset)
}

// conditions are conditions of a query with their arguments.
type conditions struct {
	texts []string
	args  []any
}

func (c *conditions) add(text string, args ...any) {
	c.texts, c.args = append(c.texts, text), append(c.args, args...)
}

// bound adds the bounds of a duration, which expr computes from a time.
func (c *conditions) bound(expr string, at claim.Time, lower, upper *time.Duration) {
	if lower != nil {
		least := lower.Microseconds()
		if least <= 0 { // negative durations count as 0
			least = math.MinInt64
		}
		c.add(expr+" >= ?", int64(at), least)
	}
	if upper != nil {
		c.add(expr+" <= ?", int64(at), upper.Microseconds())
	}
}

// where adds the conditions of the filter itself.
func (f *Filter) where(c *conditions, now claim.Instant) {
	if f.Resource != nil {
		c.add("resource = ?", *f.Resource)
	}
	if f.Prefix != "" {
		c.add("resource >= ? AND resource < ?", f.Prefix, PrefixEnd(f.Prefix))
	}
	if f.Owner != nil {
		c.add("owner = ?", *f.Owner)
	}
	if f.Units != nil {
		c.add("take = ? AND units = ?", int64(f.Units.Take), int64(f.Units.Of))
	}
	if n := len(f.Statuses); n > 0 {
		statuses := make([]any, n)
		for i, status := range f.Statuses {
			statuses[i] = uint8(status)
		}
		c.add("status IN (?"+strings.Repeat(", ?", n-1)+")", statuses...)
	}
	c.bound(activeForSQL, now.Wall, f.MinActive, f.MaxActive)
	c.bound(waitingForSQL, now.Wall, f.MinWaiting, f.MaxWaiting)
	c.bound(ttlLeftSQL, now.Lease, f.MinTTL, f.MaxTTL)
	if f.MinCreated != nil {
		c.add("created >= ?", int64(*f.MinCreated))
	}
	if f.MaxCreated != nil {
		c.add("created <= ?", int64(*f.MaxCreated))
	}
}

// Page is a part of an answer that may be large. The zero value is the whole answer.
type Page struct {
	// After is the id of the last claim of the page before, "" for the first page.
	After string
	// Limit is the number of claims to return; 0 is no bound.
	Limit int
	// Bytes bounds the memory of the answer, see Budget; 0 is no bound.
	Bytes int
	// Into is memory that the answer may use. What it holds is lost.
	Into []claim.Claim
}

// Budget bounds the memory of an answer, in bytes of names and data. The answer ends with the first claim
// after the budget is used up: this additional claim shows that the answer is not complete. 0 is no bound.
type Budget int

// Take adds a claim to the answer, and reports whether more may follow.
func (b *Budget) Take(c *claim.Claim) (more bool) {
	switch {
	case *b == 0:
		return true
	case *b < 0:
		return false
	}
	*b -= Budget(len(c.ID) + len(c.Resource) + len(c.Owner) + len(c.UserData) + len(c.Value) + len(c.Reason))
	if *b == 0 {
		*b = -1
	}
	return true
}
