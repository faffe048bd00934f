package filelog

import (
	"fmt"

	"github.com/locket-service/locket/db/codec"
)

// The kinds of frames. The kind is the first byte of a payload.
const (
	kindSegment = 1 // the first frame of a segment
	kindEntry   = 2 // an entry; its data follow
)

// segmentVersion is the format of segments.
const segmentVersion = 1

// start is the content of the first frame of a segment. With it the segments before may all be deleted.
type start struct {
	// id is the log's, and the same in all its segments.
	id uint64
	// segment is the number of the segment, and length how long its file is.
	segment, length uint64
	// index is the last entry before the segment.
	index uint64
}

func (s *start) code(c *codec.Coder) {
	for _, n := range [...]*uint64{&s.id, &s.segment, &s.length, &s.index} {
		c.Unsigned(n)
	}
}

// payload returns the payload of the frame that a segment begins with.
func (s *start) payload() []byte {
	c := codec.Writer([]byte{kindSegment, segmentVersion})
	s.code(&c)
	return c.Buffer()
}

// errPayload is returned for a frame that is intact but makes no sense.
var errPayload = fmt.Errorf("%w: what a frame says makes no sense", ErrDamaged)

func readStart(payload []byte) (s start, err error) {
	if len(payload) < 2 || payload[0] != kindSegment {
		return s, errPayload
	}
	if version := payload[1]; version != segmentVersion {
		return s, fmt.Errorf("%w: it is of version %d, and this locket reads %d", ErrAlien, version, segmentVersion)
	}
	c := codec.Reader(payload[2:])
	if s.code(&c); c.End() != nil {
		return s, errPayload
	}
	return s, nil
}

// readEntry returns the data of an entry. They are a part of the payload.
func readEntry(payload []byte) (data []byte, err error) {
	if len(payload) == 0 || payload[0] != kindEntry {
		return nil, errPayload
	}
	return payload[1:], nil
}
