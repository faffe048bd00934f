package history

// SetWALBytes sets how large the write-ahead log may become. Those who read are waited for, for long.
func (h *History) SetWALBytes(bytes int64) {
	h.walBytes, h.walNext, h.walWait = bytes, bytes, busyTimeout
}
