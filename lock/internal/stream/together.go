package stream

import (
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
)

const (
	// maxTogether and maxTogetherBytes are how many requests one message has, and how large it is; one alone may be
	// larger. A server accepts 256 and 256 KiB, but it hears of the client only when the whole message has arrived,
	// which must take less than a part of the TTL even on a slow network.
	maxTogether      = 64
	maxTogetherBytes = 4 << 10
)

// together puts requests into as few messages as possible. A heartbeat has a message of its own, so that its answer
// waits for nothing else. It does not change the requests, which may be sent again.
func together(requests []*models.SessionRequest) (messages []*models.SessionRequest) {
	if len(requests) < 2 {
		return requests
	}
	bytes := 0
	for _, request := range requests {
		size := proto.Size(request)
		if request.GetHeartbeat() != nil {
			size = maxTogetherBytes
		}
		if last := len(messages) - 1; last >= 0 && len(messages[last].GetMore())+1 < maxTogether && bytes+size <= maxTogetherBytes {
			messages[last].More = append(messages[last].More, request)
			bytes += size
			continue
		}
		messages = append(messages, &models.SessionRequest{Sequence: request.GetSequence(), Command: request.GetCommand(), Traceparent: request.GetTraceparent()})
		bytes = size
	}
	return messages
}
