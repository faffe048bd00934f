package peer

import "time"

// SetIdle sets after how long without calls the connections to other servers are closed.
func (p *Peer) SetIdle(d time.Duration) { p.links.idle = d }

// Links returns how many connections to other servers there are.
func (p *Peer) Links() int {
	p.links.mu.Lock()
	defer p.links.mu.Unlock()
	return len(p.links.byAbout)
}

// AboutAgain reads an About, and writes it again.
func AboutAgain(text []byte) ([]byte, error) {
	a, err := readAbout(text)
	return a.bytes(), err
}
