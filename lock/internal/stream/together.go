package stream

import (
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
)

const (
	// maxTogether and maxTogetherBytes are how many requests one message has, and how large it is; one alone may be larger. A server takes 256, of
	// 256 KiB, but it hears of the client when the whole message is there, which a slow network must bring within a part of the TTL.
	maxTogether      = 64
	maxTogetherBytes = 4 << 10
)

// together puts requests into as few messages as they fit in, heartbeats alone: their answers wait for nothing else. The requests themselves stay as they
// are: they may be sent again.
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
