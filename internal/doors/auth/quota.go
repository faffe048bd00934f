package auth

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/locket-service/locket/internal/rules/access"
)

// duration is a duration like 1h30m in a file.
type duration time.Duration

func (d duration) String() string { return time.Duration(d).String() }

func (d *duration) UnmarshalYAML(node *yaml.Node) error {
	parsed, err := time.ParseDuration(node.Value)
	if err != nil || parsed <= 0 {
		return fmt.Errorf("line %d: %q must be a time like 1h30m", node.Line, node.Value)
	}
	*d = duration(parsed)
	return nil
}

// quotaRule is a quota with its subjects: one identity, the identities with a prefix, or everybody else.
type quotaRule struct {
	Identity       *string `yaml:"identity"`
	IdentityPrefix *string `yaml:"identity_prefix"`
	Everybody      bool    `yaml:"everybody"`
	access.Quota   `yaml:",inline"`
	Longest        duration `yaml:"longest_ttl"`
}

func (r *quotaRule) UnmarshalYAML(node *yaml.Node) error {
	type plain quotaRule
	err := knownMembers(node, "identity", "identity_prefix", "everybody", "requests_per_second", "burst", "waiting_calls", "watches", "sessions", "claims_held", "claims_waiting", "user_data_bytes", "longest_ttl")
	if err == nil {
		err = node.Decode((*plain)(r))
	}
	if err == nil {
		r.LongestTTL = time.Duration(r.Longest)
		err = r.validate()
	}
	if err != nil && !strings.HasPrefix(err.Error(), "line ") {
		err = fmt.Errorf("line %d: %w", node.Line, err)
	}
	return err
}

func (r *quotaRule) validate() error {
	switch q := r.Quota; {
	case count(r.Identity != nil, r.IdentityPrefix != nil, r.Everybody) != 1:
		return errors.New("a quota is for one of identity, identity_prefix, and everybody: true")
	case !(q.Requests >= 0 && q.Requests <= 1e9) || q.Burst < 0 || q.Waiting < 0 || q.Watches < 0 || q.Sessions < 0 || q.Held < 0 || q.WaitingClaims < 0 || q.UserData < 0:
		return errors.New("a quota must not be negative, and requests_per_second at most 1e9; leave it out for no limit")
	case q.Burst > 0 && q.Requests == 0:
		return errors.New("burst goes together with requests_per_second")
	case q == (access.Quota{}):
		return errors.New("the quota limits nothing")
	}
	if r.Identity != nil {
		if err := ValidName(*r.Identity); err != nil {
			return fmt.Errorf("the identity %w", err)
		}
	}
	return validPrefix(r.IdentityPrefix)
}

// QuotaOf returns the quota of an identity: the one for its name, or for its longest prefix, or for everybody, in this
// order; nil if there is none. Identities do not share a quota.
func (rs *Rules) QuotaOf(name string) *access.Quota {
	var found *quotaRule
	for i := range rs.quotas {
		r := &rs.quotas[i]
		switch {
		case r.Identity != nil && *r.Identity == name:
			return &r.Quota
		case r.IdentityPrefix != nil && strings.HasPrefix(name, *r.IdentityPrefix):
			if found == nil || found.Everybody || len(*r.IdentityPrefix) > len(*found.IdentityPrefix) {
				found = r
			}
		case r.Everybody && found == nil:
			found = r
		}
	}
	if found == nil {
		return nil
	}
	return &found.Quota
}
