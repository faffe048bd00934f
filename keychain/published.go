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

	mu       sync.Mutex
	trust    lease.Window
	loss     error  // why lost is closed
	unwanted bool   // it is being ended, or has ended
	location string // the claim's address, "" until it is known
	id       string
	token    uint64
	decided  bool     // settle has chosen the claim at location
	late     []string // addresses that came in late answers, before that was decided
}

func (p *published) name() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.id
}

func (p *published) url() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.location
}

func (p *published) fencingToken() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.token
}

// held reports whether the trust window lasts. It sends no request.
func (p *published) held() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trust.Trusted(time.Now())
}

// cause returns why lost is closed, nil while it is open.
func (p *published) cause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loss
}

// isWanted reports whether the claim is not being ended.
func (p *published) isWanted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	isOver := !p.trust.IsZero() && !p.trust.Trusted(time.Now())
	return !p.unwanted && !isOver
}

// giveUp records that the claim is no longer wanted, or has ended.
func (p *published) giveUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unwanted = true
}

func (p *published) extend(trust lease.Window) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trust = trust
}

// lose makes held return false, and closes lost, before any other action.
func (p *published) lose(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trust, p.loss, p.unwanted = lease.Window{}, err, true
	close(p.lost)
}

// learn stores the claim's data in an answer.
func (p *published) learn(a *answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if token := a.fencingToken(); token != 0 {
		p.token = token
	}
	if id := a.member("id"); id != "" {
		p.id = id
	}
}

// settle decides which claim is kept, unless that was decided before, and returns the addresses of the others: see
// Claim.settle.
func (p *published) settle(location string) (strays []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.decided {
		p.decided, p.location = true, location
		if p.id == "" && location != "" {
			p.id = path.Base(location)
		}
	}
	for _, address := range p.late {
		if path.Base(address) != path.Base(p.location) { // servers may spell an address in different ways
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
	p.decided, p.location, p.id, p.token = false, "", "", 0
}

// hear stores the address in a late answer until settle, and reports whether settle has been called before.
func (p *published) hear(address string) (decided bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = append(p.late, address)
	return p.decided
}
