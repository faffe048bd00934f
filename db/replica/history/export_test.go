package history

// SetWALBytes sets how large the write-ahead log may become. Those who read are waited for, for long.
func (h *History) SetWALBytes(bytes int64) {
	h.walBytes, h.walNext, h.walWait = bytes, bytes, busyTimeout
}

// Range encodes a range of claims.
func Range(claims []Ended, last string, whole bool) []byte {
	b := batch{claims: claims, last: last, whole: whole}
	return b.write()
}
