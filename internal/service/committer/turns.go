package committer

// takeTurns orders requests so that identities take turns: one with many requests delays others by at most one request
// per identity. Requests of one identity keep their order.
func takeTurns(pending []*request) {
	waiting := make(map[string][]*request)
	var names []string // in order of arrival
	for _, r := range pending {
		name := r.caller.Name
		if waiting[name] == nil {
			names = append(names, name)
		}
		waiting[name] = append(waiting[name], r)
	}
	if len(names) < 2 {
		return
	}
	for i := 0; i < len(pending); {
		left := names[:0]
		for _, name := range names {
			pending[i] = waiting[name][0]
			i++
			if waiting[name] = waiting[name][1:]; len(waiting[name]) > 0 {
				left = append(left, name)
			}
		}
		names = left
	}
}
