package gateway

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/locket-service/locket/models"
)

// translator decodes the message of a request from its body or query.
type translator func(*http.Request) (proto.Message, *refusal)

// decode decodes the message of a request from its body or query, and the name at the end of its path.
func (o operation) decode(r *http.Request, name string) (message proto.Message, refused *refusal) {
	if o.query == nil && r.URL.RawQuery != "" {
		given, wrong := parseQuery(r.URL.RawQuery, &struct{}{})
		for name := range given {
			wrong[name] = "unknown parameter"
		}
		if refused := badRequest(wrong); refused != nil {
			return nil, refused
		}
	}
	switch {
	case o.translate != nil:
		message, refused = o.translate(r)
	case o.rpc.request != nil:
		message = o.rpc.request()
	}
	if refused == nil {
		refused = ifMatch(message, r.Header)
	}
	if refused == nil && name != "" {
		fields := message.ProtoReflect()
		fields.Set(fields.Descriptor().Fields().ByName(o.nameInPath()), protoreflect.ValueOfString(name))
	}
	return message, refused
}

// messager is a pointer to a struct of parameters.
type messager[T any] interface {
	*T
	message() proto.Message
}

// query translates a request with parameters in its query.
func query[T any, P messager[T]](r *http.Request) (proto.Message, *refusal) {
	target := P(new(T))
	given, wrong := parseQuery(r.URL.RawQuery, target)
	wrong.add(given.into(target))
	return target.message(), badRequest(wrong)
}

// body translates a request with parameters in its body.
func body[T any, P messager[T]](r *http.Request) (proto.Message, *refusal) {
	target := P(new(T))
	content, refused := readBody(r)
	if refused != nil {
		return nil, refused
	}
	given, wrong := parseBody(content)
	if given != nil {
		wrong.add(given.into(target))
	}
	return target.message(), badRequest(wrong)
}

// maxBody is the maximum size of a body, in bytes. The largest valid one has a value of 64 KiB, where JSON may need six
// characters for each byte, and 64 KiB of user data, which are JSON already.
const maxBody = 512 << 10

func readBody(r *http.Request) ([]byte, *refusal) {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, &refusal{code: http.StatusUnsupportedMediaType, body: problems{"message": "the body must not be compressed"}}
	}
	if !isJSON(r.Header.Get("Content-Type")) {
		return nil, &refusal{code: http.StatusUnsupportedMediaType, body: problems{"message": "the header Content-Type must be application/json, in UTF-8"}}
	}
	content, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, &refusal{code: http.StatusRequestEntityTooLarge, body: problems{"message": fmt.Sprintf("the body has more than %d bytes", maxBody)}}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &refusal{code: http.StatusRequestTimeout, body: problems{"message": "the body did not come in time"}}
	case err != nil:
		return nil, badRequest(problems{"message": "the body cannot be read: " + err.Error()})
	}
	return content, nil
}

// isJSON reports whether a content type is JSON. It is required, because a page of another site may send a body without
// one.
func isJSON(contentType string) bool {
	mediaType, parameters, err := mime.ParseMediaType(contentType)
	charset, given := parameters["charset"]
	return err == nil && (mediaType == "application/json" || strings.HasSuffix(mediaType, "+json")) &&
		(!given || strings.EqualFold(charset, "utf-8"))
}

// translateCreate takes the id of the claim from the body or from the header Idempotency-Key.
func translateCreate(r *http.Request) (proto.Message, *refusal) {
	message, refused := body[createBody](r)
	key := strings.Trim(r.Header.Get(idempotencyKey), `"`)
	if refused != nil || key == "" {
		return message, refused
	}
	create := message.(*models.CreateClaimRequest)
	if create.GetId() != "" && create.GetId() != key {
		return nil, badRequest(problems{"id": "differs from the header " + idempotencyKey})
	}
	create.Id = key
	return create, nil
}

const idempotencyKey = "Idempotency-Key"

// translatePatch refuses two updates at once (the REST requirements); PUT accepts them (refresh of the claim client).
func translatePatch(r *http.Request) (proto.Message, *refusal) {
	message, refused := body[updateBody](r)
	if update, ok := message.(*models.UpdateClaimRequest); ok && refused == nil && update.Ttl != nil && update.GetStatus() != 0 {
		const problem = "only one of ttl and status may be updated at a time"
		return nil, badRequest(problems{"ttl": problem, "status": problem})
	}
	return message, refused
}

// etagOf returns the entity tag of a claim, made from its version, which every change raises. Values that only change
// with time (ttl, durations) do not change it.
func etagOf(version uint64) string { return strconv.Quote(strconv.FormatUint(version, 10)) }

// ifMatch makes a change conditional on the version in the header If-Match (RFC 9110, section 13.1.1). Other tags, and
// weak ones, match no version of a claim.
func ifMatch(message proto.Message, header http.Header) *refusal {
	tags := strings.TrimSpace(strings.Join(header.Values("If-Match"), ","))
	if tags == "" || tags == "*" { // matches every claim
		return nil
	}
	if strings.Contains(tags, ",") {
		return badRequest(problems{"message": "the header If-Match: give one entity tag"})
	}
	quoted, _ := strings.CutPrefix(tags, `"`)
	version, err := strconv.ParseUint(strings.TrimSuffix(quoted, `"`), 10, 64)
	if err != nil || etagOf(version) != tags {
		version = 0
	}
	switch message := message.(type) {
	case *models.UpdateClaimRequest:
		message.IfVersion = &version
	case *models.EndClaimRequest:
		message.IfVersion = &version
	}
	return nil
}

// inQuery are query parameters that clients of other services use for credentials (RFC 6750, section 2.3).
var inQuery = []string{"access_token", "api_key", "apikey", "auth_token", "authorization", "id_token", "password", "token"}

// refuseCredentials refuses a credential in a query, valid or not, because proxies, browsers and logs keep URLs.
func refuseCredentials(query url.Values) *refusal {
	wrong := make(problems)
	for name := range query {
		for _, known := range inQuery {
			if strings.EqualFold(name, known) {
				wrong[name] = "credentials do not belong into an address, which logs keep; send the header Authorization, and replace this credential"
			}
		}
	}
	return badRequest(wrong)
}
