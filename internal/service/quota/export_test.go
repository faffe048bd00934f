package quota

// Identities returns how many identities the guard knows.
func (g *Guard) Identities() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.usages)
}
