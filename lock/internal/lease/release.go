package lease

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/lock/internal/base"
)

const (
	// maxReleases bounds the attempts of releaseLater.
	maxReleases = 12
	// releasePause is the first pause between two of them; each further one is twice as long,
	// an eighth of the TTL at most.
	releasePause = 100 * time.Millisecond
)

// stop ends the grant. An attempt under way gets half of the time to end, because an unknown grant cannot be released
// for sure.
func (h *hold) stop() {
	deadline := time.Now().Add(h.ReleaseTimeout)
	if h.attempt != nil {
		select {
		case r := <-h.attempt:
			if h.note(r); h.calls.classify(r.err) == base.Ended {
				return // a release without a token could end a later grant of the same owner
			}
		case <-time.After(h.ReleaseTimeout / 2):
			h.cancel()
		}
	}
	if h.held || h.token != 0 || h.open {
		h.release(deadline)
	}
}

// release ends the grant, and tries until a deadline, and in the background after it: that
// very grant if its token is known, otherwise whatever the owner holds.
func (h *hold) release(deadline time.Time) {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	for {
		done, err := tryRelease(ctx, h.log, h.calls, h.token, h.ReleaseTimeout/3)
		if done {
			return
		}
		select {
		case <-ctx.Done():
			h.log.Warn("lock not released yet; it is free when its TTL has passed", "error", err)
			h.releaseLater(0)
			return
		case <-time.After(h.ReleaseTimeout / 20):
		}
	}
}

// releaseLater ends the grant in the background after a delay, if that cannot end another grant: the server may have
// accepted a renewal whose answer was lost, and would keep the lock for a whole TTL. After the loss of a lock the
// delay is the margin, which the holder needs to stop. It ends after maxReleases attempts, after the TTL, or when the
// connection was closed.
func (h *hold) releaseLater(after time.Duration) {
	calls, token, log := h.calls, h.token, h.log
	if token == 0 && !h.open || !calls.exact(token) {
		return
	}
	timeout, ttl := base.AttemptTimeout(h.TTL), h.TTL
	h.pending.Start(func() {
		time.Sleep(after)
		ctx, cancel := context.WithTimeout(context.Background(), ttl)
		defer cancel()
		pause := releasePause
		for i := 0; i < maxReleases && ctx.Err() == nil; i++ {
			done, err := tryRelease(ctx, log, calls, token, timeout)
			if done || status.Code(err) == codes.Canceled {
				return
			}
			_ = periodic.Pause(ctx, pause)
			pause = min(2*pause, ttl/8)
		}
		log.Warn("lock not released; it is free when its TTL has passed")
	})
}

// tryRelease sends one request to end a grant. It reports whether no other is needed: the grant was released, had
// ended before, or the server refuses.
func tryRelease(ctx context.Context, log *slog.Logger, calls calls, token uint64, timeout time.Duration) (done bool, err error) {
	ctx, cancel := context.WithTimeout(base.WithRequestID(ctx), timeout)
	defer cancel()
	err = calls.release(ctx, token)
	switch verdict := calls.classify(err); {
	case err == nil, verdict == base.Ended:
		log.Info("lock released")
		return true, err
	case verdict == base.Unclear:
		return false, err
	default:
		log.Warn("lock not released; it is free when its TTL has passed", "error", err)
		return true, err
	}
}
