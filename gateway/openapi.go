package gateway

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/locket-service/locket/models/jsonview"
)

// object is a JSON object.
type object = map[string]any

// openAPI returns the OpenAPI document. It is generated from the types that decode requests and encode answers.
func openAPI() object {
	schemas := object{"Problems": object{
		"type": "object", "description": "What is wrong, by the name of the parameter, or under message.",
		"additionalProperties": object{"type": "string"}, "minProperties": 1,
		"example":    example(problemsExample),
		"properties": object{"deadlock": object{"type": "array", "items": object{"type": "object"}, "description": "The members of a deadlock: owner, session, claim and resource of each."}},
	}}
	schemas["Problem"] = schemaOfProblem(schemas)
	paths := object{}
	for _, o := range operations {
		path := o.path
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path].(object)[strings.ToLower(o.method)] = o.document(schemas)
	}
	return object{
		"openapi": "3.0.3",
		"info": object{
			"title": "Locket", "version": "1",
			"description": "Locks, claims that wait their turn, and presences. The final slash of a path is optional. The name at the end of a path may be the query parameter name instead, as in /v1/resources/?name=a%2Fb, and must be if it is . or .. and the client is a browser.",
		},
		"servers":    []any{object{"url": "/"}},
		"security":   []any{object{"bearer": []string{}}, object{"basic": []string{}}, object{}},
		"paths":      paths,
		"components": object{"schemas": schemas, "securitySchemes": securitySchemes},
	}
}

// securitySchemes are the credentials that a request itself has. A client certificate belongs to the connection, and a
// proxy adds its headers.
var securitySchemes = object{
	"bearer": object{"type": "http", "scheme": "bearer", "description": "A bearer credential: one of the server's file, or a JWT of an OIDC provider."},
	"basic":  object{"type": "http", "scheme": "basic", "description": "The bearer credential as the password, with any name."},
}

// schemaOfProblem returns the schema of application/problem+json.
func schemaOfProblem(schemas object) object {
	schema := structSchema(reflect.TypeFor[problemView](), schemas)
	properties := schema["properties"].(object)
	properties["errors"] = object{"type": "object", "additionalProperties": object{"type": "string"}, "description": "What is wrong, by the name of the parameter."}
	properties["deadlock"] = object{"type": "array", "items": object{"type": "object"}, "description": "The members of a deadlock: owner, session, claim and resource of each."}
	schema["description"], schema["example"] = "An error (RFC 9457).", example(problemExample)
	schema["required"] = []string{"title", "status", "detail"}
	return schema
}

func (o operation) document(schemas object) object {
	described := object{"operationId": o.id, "summary": o.summary, "responses": o.responses(schemas)}
	if parameters := o.parameters(); len(parameters) > 0 {
		described["parameters"] = parameters
	}
	if o.body != nil {
		described["requestBody"] = object{"required": true, "content": jsonContent(schemaOf(reflect.TypeOf(o.body), schemas), example(o.example))}
	}
	return described
}

func (o operation) parameters() (list []any) {
	if _, name, ok := strings.Cut(o.path, "{"); ok {
		list = append(list, object{
			"in": "path", "name": strings.TrimSuffix(name, "}"), "required": true, "schema": object{"type": "string"},
		})
	}
	if o.query != nil {
		for field := range reflect.TypeOf(o.query).Fields() {
			parameter := object{
				"in": "query", "name": nameOf(field), "description": field.Tag.Get("doc"),
				"schema": bounded(schemaOf(field.Type.Elem(), nil), field.Tag),
			}
			if field.Type.Elem().Kind() == reflect.Slice {
				parameter["schema"] = object{"type": "array", "items": parameter["schema"]}
				parameter["style"], parameter["explode"] = "form", false // separated by commas
			}
			if field.Tag.Get("required") != "" {
				parameter["required"] = true
			}
			list = append(list, parameter)
		}
	}
	for _, h := range o.headers {
		list = append(list, object{"in": "header", "name": h.name, "description": h.doc, "schema": object{"type": "string"}})
	}
	return list
}

func (o operation) responses(schemas object) object {
	responses := object{}
	for _, a := range append(o.answers, commonAnswers...) {
		response := object{"description": a.doc}
		switch {
		case a.events != nil:
			data := []any{}
			for _, name := range slices.Sorted(maps.Keys(a.events)) {
				data = append(data, schemaOf(reflect.TypeOf(a.events[name]), schemas))
			}
			response["content"] = object{"text/event-stream": object{"schema": object{"description": "The data of an event.", "oneOf": data}}}
		case a.body != nil:
			t := reflect.TypeOf(a.body)
			response["content"] = jsonContent(schemaOf(t, schemas), exampleOf(t))
		case a.code >= http.StatusBadRequest:
			response["content"] = object{"application/json": object{"schema": reference("Problems")}, problemType: object{"schema": reference("Problem")}}
		}
		headers := object{"X-Request-Id": headerSchema, markHeader: headerSchema}
		for _, name := range a.headers {
			headers[name] = headerSchema
		}
		response["headers"] = headers
		responses[strconv.Itoa(a.code)] = response
	}
	return responses
}

var headerSchema = object{"schema": object{"type": "string"}}

func jsonContent(schema object, example any) object {
	return object{"application/json": object{"schema": schema, "example": example}}
}

func reference(name string) object { return object{"$ref": "#/components/schemas/" + name} }

// schemaOf returns the JSON schema of a type. It adds the schemas of structs to schemas.
func schemaOf(t reflect.Type, schemas object) object {
	switch reflect.Zero(t).Interface().(type) {
	case jsonview.Timestamp, time.Time:
		return object{"type": "string", "format": "date-time"}
	case jsonview.JSON:
		return object{"anyOf": []any{
			object{"type": "object", "additionalProperties": true, "nullable": true},
			object{"type": "array", "items": object{}},
			object{"type": "string"},
			object{"type": "number"},
			object{"type": "boolean"},
		}}
	}
	if named, ok := reflect.Zero(t).Interface().(enum); ok {
		values := []any{}
		for _, name := range named.Names() {
			values = append(values, name)
		}
		return object{"type": "string", "enum": values}
	}
	switch t.Kind() {
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Int:
		return object{"type": "integer"}
	case reflect.Uint32, reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(t.Elem(), schemas)}
	case reflect.Struct:
		name := title(t.Name())
		if schemas[name] == nil {
			schemas[name] = structSchema(t, schemas)
		}
		return reference(name)
	default:
		return object{"type": "string"}
	}
}

// title returns the name of the schema of a type: Claim for claimView.
func title(name string) string {
	name = strings.TrimSuffix(name, "View")
	return string(unicode.ToUpper(rune(name[0]))) + name[1:]
}

// alwaysWhole are types other than views whose members are all required.
var alwaysWhole = map[reflect.Type]bool{
	reflect.TypeFor[jsonview.StatusChange](): true, reflect.TypeFor[jsonview.Watched](): true, reflect.TypeFor[jsonview.Transition](): true, reflect.TypeFor[jsonview.Refusals](): true,
}

// structSchema returns the schema of a view, with all members required, or of a body, with the members required that
// are tagged so.
func structSchema(t reflect.Type, schemas object) object {
	properties, required := object{}, []string{}
	for _, field := range reflect.VisibleFields(t) {
		if field.Anonymous {
			continue
		}
		properties[nameOf(field)] = fieldSchema(field, schemas)
		if strings.HasSuffix(t.Name(), "View") || alwaysWhole[t] || field.Tag.Get("required") != "" {
			required = append(required, nameOf(field))
		}
	}
	schema := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		schema["required"] = required
	}
	return schema
}

// fieldSchema returns the schema of a member: its type's schema with the additions of its tags.
func fieldSchema(field reflect.StructField, schemas object) object {
	t, null := field.Type, false
	if t.Kind() == reflect.Pointer {
		t, null = t.Elem(), field.Tag.Get("required") == ""
	}
	schema := bounded(schemaOf(t, schemas), field.Tag)
	switch { // a $ref may have no siblings, and the one schema of an allOf decides alone whether null is valid
	case schema["$ref"] != nil && null:
		schema = object{"anyOf": []any{schema, object{"type": "object", "nullable": true, "enum": []any{nil}}}}
	case schema["$ref"] != nil:
		schema = object{"allOf": []any{schema}}
	}
	if doc := field.Tag.Get("doc"); doc != "" {
		schema["description"] = doc
	}
	if null && schema["anyOf"] == nil { // an anyOf has null already
		schema["nullable"] = true
		if names, ok := schema["enum"].([]any); ok {
			schema["enum"] = append(names, nil)
		}
	}
	return schema
}

func bounded(schema object, tag reflect.StructTag) object {
	for _, bound := range []string{"minimum", "maximum", "minLength", "maxLength"} {
		if value, err := strconv.Atoi(tag.Get(bound)); err == nil {
			schema[bound] = value
		}
	}
	return schema
}

const (
	problemsExample = `{"ttl": "is required", "colour": "unknown parameter"}`
	problemExample  = `{"title": "Bad Request", "status": 400, "detail": "parameters are wrong: colour, ttl", "instance": "urn:request:build-17",
		"errors": {"ttl": "is required", "colour": "unknown parameter"}}`
)

// exampleOf returns the example of a view, or of a list of views.
func exampleOf(t reflect.Type) any {
	if t.Kind() == reflect.Slice {
		return []any{exampleOf(t.Elem())}
	}
	return example(reflect.Zero(t).Interface().(exemplary).example())
}

// example decodes an example, which is JSON.
func example(text string) (value any) {
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		panic("the example " + text + ": " + err.Error())
	}
	return value
}
