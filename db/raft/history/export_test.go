package history

// SetWALBytes sets how large the write-ahead log may become.
func (h *History) SetWALBytes(bytes int64) { h.walBytes, h.walNext = bytes, bytes }
