package keychain

import (
	"path"
	"sync"
	"time"

	"github.com/locket-service/locket/internal/base/lease"
)

// published is the known state of a claim. Its worker writes it; any goroutine may read it, through the
// handle.
type published struct {
	lost chan struct{} // Done: closed when the claim is not held any more

	mu      sync.Mutex
	known   known
	decided bool     // settle has chosen the claim at location
	late    []string // addresses that came in late answers, before that was decided
}

// known has the facts about a claim at one moment.
type known struct {
	trust    lease.Window
	loss     error  // why lost is closed, nil while it is open
	unwanted bool   // it is being ended, or has ended
	location string // the claim's address, "" until it is known
	id       string
	token    uint64
}

func (p *published) now() known {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known
}

// held reports whether the trust window lasts.
func (k known) held() bool { return k.trust.Trusted(time.Now()) }

// isWanted reports whether the claim is not being ended.
func (k known) isWanted() bool { return !k.unwanted && (k.trust.IsZero() || k.held()) }

// giveUp records that the claim is no longer wanted, or has ended.
func (p *published) giveUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known.unwanted = true
}

func (p *published) extend(trust lease.Window) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known.trust = trust
}

// lose makes held return false, and closes lost, before any other action.
func (p *published) lose(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known.trust, p.known.loss, p.known.unwanted = lease.Window{}, err, true
	close(p.lost)
}

// learn stores the claim's data in an answer.
func (p *published) learn(a *answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if token := a.fencingToken(); token != 0 {
		p.known.token = token
	}
	if id := a.member("id"); id != "" {
		p.known.id = id
	}
}

// settle decides which claim is kept, unless that was decided before, and returns the addresses of the others: see
// Claim.settle.
func (p *published) settle(location string) (strays []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.decided {
		p.decided, p.known.location = true, location
		if p.known.id == "" && location != "" {
			p.known.id = path.Base(location)
		}
	}
	for _, address := range p.late {
		if path.Base(address) != path.Base(p.known.location) { // servers may spell an address in different ways
			strays = append(strays, address)
		}
	}
	p.late = nil
	return strays
}

// forget drops the kept claim, so that settle can decide again.
func (p *published) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decided, p.known.location, p.known.id, p.known.token = false, "", "", 0
}

// hear stores the address in a late answer until settle, and reports whether settle has been called before.
func (p *published) hear(address string) (decided bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = append(p.late, address)
	return p.decided
}
