package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/locket-service/locket/models"
)

// decode returns the message of a request, from its body or query, and the name at the end of its path.
func (o operation) decode(r *http.Request, name string) (proto.Message, *refusal) {
	message := o.rpc.request()
	refused := o.decodeParameters(r, message)
	if refused == nil && o.adjust != nil {
		refused = o.adjust(r, message)
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

// decodeParameters sets the fields of a message to the parameters in the query and the body of a request.
func (o operation) decodeParameters(r *http.Request, message proto.Message) *refusal {
	if o.query != nil || r.URL.RawQuery != "" {
		target := reflect.New(reflect.TypeOf(cmp.Or(o.query, any(struct{}{})))).Interface()
		given, wrong := parseQuery(r.URL.RawQuery, target)
		wrong.add(given.into(target))
		if len(wrong) > 0 {
			return badRequest(wrong)
		}
		fill(message, target)
	}
	if o.body == nil {
		return nil
	}
	content, refused := readBody(r)
	if refused != nil {
		return refused
	}
	target := reflect.New(reflect.TypeOf(o.body)).Interface()
	given, wrong := parseBody(content)
	if given != nil {
		wrong.add(given.into(target))
	}
	fill(message, target)
	return badRequest(wrong)
}

// fill sets the fields of a message to the parameters that are given in a struct.
func fill(message proto.Message, parameters any) {
	to, from := message.ProtoReflect(), reflect.ValueOf(parameters).Elem()
	for i := range from.NumField() {
		if given := from.Field(i); !given.IsNil() {
			name := fieldOf(from.Type().Field(i))
			setField(to, to.Descriptor().Fields().ByName(protoreflect.Name(name)), given.Elem())
		}
	}
}

func setField(message protoreflect.Message, field protoreflect.FieldDescriptor, value reflect.Value) {
	switch value.Kind() {
	case reflect.String:
		message.Set(field, protoreflect.ValueOfString(value.String()))
	case reflect.Int32:
		message.Set(field, protoreflect.ValueOfEnum(protoreflect.EnumNumber(value.Int())))
	case reflect.Slice: // statuses
		list := message.Mutable(field).List()
		for i := range value.Len() {
			list.Append(protoreflect.ValueOfEnum(protoreflect.EnumNumber(value.Index(i).Int())))
		}
	case reflect.Struct: // a time
		at, _ := value.Interface().(time.Time)
		message.Set(field, protoreflect.ValueOfMessage(timestamppb.New(at).ProtoReflect()))
	default: // a number, or true or false
		message.Set(field, protoreflect.ValueOf(value.Interface()))
	}
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

// takeIdempotencyKey takes the id of a claim from the header Idempotency-Key too.
func takeIdempotencyKey(r *http.Request, message proto.Message) *refusal {
	create, _ := message.(*models.CreateClaimRequest)
	key := strings.Trim(r.Header.Get(idempotencyKey), `"`)
	if key != "" && create.GetId() != "" && create.GetId() != key {
		return badRequest(problems{"id": "differs from the header " + idempotencyKey})
	}
	create.Id = cmp.Or(key, create.GetId())
	return nil
}

const idempotencyKey = "Idempotency-Key"

// oneUpdate refuses two updates at once (the REST requirements); PUT accepts them (refresh of the claim client).
func oneUpdate(_ *http.Request, message proto.Message) *refusal {
	if update, _ := message.(*models.UpdateClaimRequest); update.Ttl != nil && update.GetStatus() != 0 {
		const problem = "only one of ttl and status may be updated at a time"
		return badRequest(problems{"ttl": problem, "status": problem})
	}
	return nil
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
