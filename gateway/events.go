package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/klauspost/compress/gzhttp"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

const (
	eventsPath = "/v1/events"
	// keepAliveInterval is how often a comment is sent, so that neither side, nor a proxy between them, closes an idle
	// connection.
	keepAliveInterval = 15 * time.Second
	// reconnectPause is how long a client should wait before it connects again when its stream has ended.
	reconnectPause = time.Second
	// eventTimeout limits how long one write to a client may take.
	eventTimeout = 10 * time.Second
	// keptText is how much memory a stream keeps for its output. There may be very many streams, and larger output is rare.
	keptText = 16 << 10
	// lastEventID is the header with the id of the client's last event, to resume after it (HTML standard,
	// server-sent events).
	lastEventID = "Last-Event-ID"
)

// eventsQuery is the query of GET /v1/events/.
type eventsQuery struct {
	Resource   *string        `json:"resource" doc:"The name of a resource." minLength:"1" maxLength:"1024"`
	Prefix     *string        `json:"prefix" doc:"A prefix of the resources' names." maxLength:"1024"`
	Owner      *string        `json:"owner" doc:"The owner, as the client names itself." maxLength:"1024"`
	Session    *string        `json:"session" doc:"The session that the claim is bound to."`
	Type       *jsonview.Type `json:"type" field:"type_code" doc:"The purpose of the claim."`
	Cursor     *string        `json:"cursor" doc:"The id of the last received event, to continue after it; the header Last-Event-ID overrides it."`
	NoSnapshot *bool          `json:"no_snapshot" doc:"Leave out the claims that are live. The default is false."`
	Refusals   *bool          `json:"refusals" doc:"Also how many requests were refused; not together with owner, session and type. The default is false."`
}

// takeLastEventID takes the cursor from the header. A browser that reconnects repeats its first query and adds a later id in
// the header.
func takeLastEventID(r *http.Request, message proto.Message) *refusal {
	if id := r.Header.Get(lastEventID); id != "" {
		message.(*models.WatchRequest).Cursor = id
	}
	return nil
}

// events answers a watch with server-sent events.
func (m mux) events(w http.ResponseWriter, r *http.Request) {
	known := requestOf(r.Context())
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(r.Context(), callMetadata(m.config, r)))
	defer cancel()
	keepAlive := time.NewTicker(keepAliveInterval)
	defer keepAlive.Stop()
	request := known.message.(*models.WatchRequest)
	out := eventWriter{w: w, flush: http.NewResponseController(w).Flush, known: known, keepAlive: keepAlive.C}
	err := out.follow(ctx, watch(ctx, m.service, request))
	if models.ReasonOf(err) == models.ReasonCursorTooOld && !out.sent { // an EventSource that is refused does not reconnect
		request.Cursor, out.missed = "", true
		err = out.follow(ctx, watch(ctx, m.service, request))
	}
	switch {
	case err == nil: // the client takes no more, or wants no more
	case out.started:
		_ = out.end(err) // the client may be gone
	default:
		writeError(w, r, err)
	}
}

// received is a response of a watch, or the error that ended it.
type received struct {
	response *models.WatchResponse
	err      error
}

// watch starts a watch and returns its responses, until an error or the end of ctx.
func watch(ctx context.Context, service models.LocketClient, request *models.WatchRequest) <-chan received {
	next := make(chan received)
	go func() {
		stream, err := service.Watch(ctx, request)
		for {
			var response *models.WatchResponse
			if err == nil {
				response, err = stream.Recv()
			}
			select {
			case next <- received{response, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return next
}

// eventWriter writes responses of Watch as server-sent events.
type eventWriter struct {
	w     http.ResponseWriter
	flush func() error
	known *request
	text  bytes.Buffer
	// keepAlive has a value when a comment is due.
	keepAlive <-chan time.Time
	// started is set when the answer has started; an error is then an event. The answer begins with the first response,
	// or with the first comment if the response takes long, because proxies give up after a minute or so.
	started bool
	// sent is set when a response was sent. missed is set if the first event must say that changes were missed and
	// the live claims follow again.
	sent, missed bool
}

// follow writes a watch's responses and returns the watch's error or ctx's, and nil if the client takes or wants no more.
func (o *eventWriter) follow(ctx context.Context, next <-chan received) error {
	for {
		var err error
		select {
		case r := <-next:
			if r.err != nil {
				return r.err
			}
			err = o.send(r.response)
		case <-o.keepAlive:
			o.begin()
			o.text.WriteString(":\n\n")
			err = o.write()
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
		if err != nil {
			return nil //nolint:nilerr // there is nobody to tell
		}
		if o.known.headOnly {
			return nil
		}
	}
}

// begin sends the header, the pause before a reconnect, and whether changes were missed. It does nothing if it was
// called before.
func (o *eventWriter) begin() {
	if !o.started {
		o.w.Header().Set("Content-Type", "text/event-stream")
		o.w.Header().Set("X-Accel-Buffering", "no") // disables the buffering of nginx
		o.w.Header().Set(gzhttp.HeaderNoCompression, "true")
		fmt.Fprintf(&o.text, "retry: %d\n\n", reconnectPause.Milliseconds())
	}
	if o.missed {
		fmt.Fprint(&o.text, "event: reset\ndata: {}\n\n")
	}
	o.started, o.missed = true, false
}

// send writes a response. Its last event has the cursor as its id.
func (o *eventWriter) send(response *models.WatchResponse) error {
	o.begin()
	o.sent = true
	var all []event
	for _, c := range response.GetSnapshot() {
		all = append(all, event{"claim", jsonview.OfWatched(c)})
	}
	if response.GetSynced() {
		all = append(all, event{"synced", struct{}{}})
	}
	for _, t := range response.GetTransitions() {
		all = append(all, event{"transition", jsonview.OfTransition(t)})
	}
	if n := response.GetRefusals(); n > 0 {
		all = append(all, event{"refusals", jsonview.Refusals{Count: n}})
	}
	for i, e := range all {
		if i == len(all)-1 && response.GetCursor() != "" {
			fmt.Fprintf(&o.text, "id: %s\n", response.GetCursor())
		}
		if err := o.add(e); err != nil {
			return err
		}
	}
	if len(all) == 0 { // an id without an event still sets the client's last event id
		fmt.Fprintf(&o.text, "id: %s\n\n", response.GetCursor())
	}
	return o.write()
}

type event struct {
	name string
	data any
}

func (o *eventWriter) add(e event) error {
	data, err := encode(e.data) // one line, with its end
	fmt.Fprintf(&o.text, "event: %s\ndata: %s\n", e.name, data)
	return err
}

// end sends why the stream ends. The client reconnects to resume.
func (o *eventWriter) end(err error) error {
	refused := o.known.operation.refusalOf(status.Convert(err))
	return errors.Join(o.add(event{"end", refused.body}), o.write())
}

func (o *eventWriter) write() error {
	defer o.forget()
	o.known.writeWithin(eventTimeout)
	_, err := o.w.Write(o.text.Bytes())
	err = errors.Join(err, o.flush())
	o.known.writeWithin(keepAliveInterval + eventTimeout) // until the next write: over HTTP/2 a deadline ends an idle stream, too
	return err
}

// forget empties the text.
func (o *eventWriter) forget() {
	if o.text.Cap() > keptText {
		o.text = bytes.Buffer{}
	}
	o.text.Reset()
}
