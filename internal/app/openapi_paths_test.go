package app

// describeAPI describes the endpoints of the private listener, and of the listener for pushes.
func describeAPI(schemas object) object {
	text := object{"text/plain": object{"schema": object{"type": "string"}}}
	asJSON := func(schema object) object { return object{"application/json": object{"schema": schema}} }
	ref := func(name string) object { return object{"$ref": "#/components/schemas/" + name} }
	answer := func(about string, content object) object {
		if content == nil {
			return object{"description": about}
		}
		return object{"description": about, "content": content}
	}
	refused := answer("A web page of another site asks, or the listener is called by a name that admin.hosts does not have.", text)
	guarded := func(about string, content object) object {
		return object{"200": answer(about, content), "401": answer("The token is missing or wrong.", text), "403": refused}
	}
	token := []object{{"token": []string{}}}
	ready := object{"text/plain": text["text/plain"], "application/json": object{"schema": ref("admin.Readiness")}}
	private := func(id, summary string, security []object, responses object) object {
		return object{"get": object{"operationId": id, "summary": summary, "security": security, "responses": responses}, "servers": []object{{"url": "http://127.0.0.1:9100", "description": "admin.listen"}}}
	}
	format := object{"name": "format", "in": "query", "description": "json or text; without it the Accept header decides", "schema": object{"enum": []string{"json", "text"}}}
	readyz := private("ready", "Whether pushes are taken, with a line for each part of the relay", []object{{}, {"token": []string{}}}, object{
		"200": answer("Pushes are taken. Without the token, reasons are fixed words.", ready), "503": answer("A push does better at another relay.", ready), "403": refused,
	})
	readyz["get"].(object)["parameters"] = []object{format}
	tlog := guarded("A file of the trail.", object{"application/octet-stream": object{}, "text/plain": object{}})
	tlog["404"] = answer("There is no such file.", text)
	tlog["503"] = answer("This relay has just taken over the trail, and brings its files up to it: try again after Retry-After.", text)
	tree := private("trail", "The audit trail in the layout of C2SP tlog-tiles, such as 0/checkpoint", token, tlog)
	tree["parameters"] = []object{{"name": "path", "in": "path", "required": true, "description": "it may hold slashes", "schema": object{"type": "string"}}}
	input := pushPath("pushDatadogV1", "Events, as Datadog's older intake takes them", datadogTaken, text, ref("DatadogV1Refusal"))
	withKey := pushPath("pushDatadogV1WithKey", "The same, with the API key in the path", datadogTaken, text, ref("DatadogV1Refusal"))
	withKey["parameters"] = []object{{"name": "api_key", "in": "path", "required": true, "schema": object{"type": "string"}}}
	schemas["DatadogV1Refusal"] = object{"type": "object", "required": []string{"code", "message"}, "properties": object{"code": object{"type": "integer"}, "message": object{"type": "string"}}}
	schemas["DatadogV2Refusal"] = object{"type": "object", "required": []string{"errors"}, "properties": object{"errors": object{"type": "array", "items": object{
		"type": "object", "required": []string{"status", "title", "detail"},
		"properties": object{"status": object{"type": "string"}, "title": object{"type": "string"}, "detail": object{"type": "string"}},
	}}}}
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title": "auditrelay", "version": "0", "license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
			"description": "The HTTP endpoints of a relay: those of the private listener, and those that take pushes. Made from the code by `make reference`, and held against real answers by a test. A minor version may add members.",
		},
		"servers": []object{{"url": "https://relay.example.com", "description": "ingest.listen"}},
		"paths": object{
			"/healthz":            private("healthy", "Whether the process serves at all", []object{{}}, object{"200": answer("It serves.", text), "403": refused}),
			"/readyz":             readyz,
			"/status":             private("status", "The state of every part, as JSON", token, guarded("A section for each part.", asJSON(ref("Status")))),
			"/metrics":            private("metrics", "Metrics for Prometheus", []object{{}, {"token": []string{}}}, guarded("Without admin.token, no token is asked for.", text)),
			"/openapi.json":       private("describe", "This description", []object{{}}, object{"200": answer("OpenAPI 3.1; `auditrelay openapi` prints the same.", asJSON(object{"type": "object"})), "403": refused}),
			"/tlog/{path}":        tree,
			"/loki/api/v1/push":   pushPath("pushLoki", "Events, as Loki takes them: JSON, or protobuf with snappy", object{"204": answer("All of it is durable.", nil)}, text, nil),
			"/api/v2/logs":        pushPath("pushDatadogV2", "Events, as Datadog's logs intake takes them", datadogTaken, text, ref("DatadogV2Refusal")),
			"/v1/input":           input,
			"/v1/input/{api_key}": withKey,
		},
		"components": object{"schemas": schemas, "securitySchemes": object{
			"token":  object{"type": "http", "scheme": "bearer", "description": "admin.token, or the one in DATA_DIR/admin.token"},
			"basic":  object{"type": "http", "scheme": "basic", "description": "a push credential"},
			"apiKey": object{"type": "apiKey", "in": "header", "name": "DD-API-KEY", "description": "a push credential"},
		}},
	}
}

var datadogTaken = object{"202": object{"description": "All of it is durable.", "content": object{"application/json": object{"schema": object{"type": "object"}}}}}

// pushPath describes an endpoint for pushes; a refusal is plain text where it has no schema.
func pushPath(id, summary string, taken, text, refusal object) object {
	body := text
	if refusal != nil {
		body = object{"application/json": object{"schema": refusal}}
	}
	responses := object{}
	for status, about := range map[string]string{
		"400": "It cannot be read, or some entries were refused: the text names them. The others are durable.",
		"401": "A credential is missing, or wrong.",
		"403": "The API key is wrong.",
		"405": "Push with POST.",
		"408": "The body comes too slowly.",
		"413": "The push, or an entry, is larger than ingest.limits allow.",
		"415": "The Content-Type or Content-Encoding is not known.",
		"422": "The push has no streams.",
		"429": "Too many pushes at once, or more than the environment's quota: try again after Retry-After.",
		"503": "The journal is full, unavailable, or still starting: try again after Retry-After.",
	} {
		responses[status] = object{"description": about, "content": body}
	}
	for status, answer := range taken {
		responses[status] = answer
	}
	return object{"post": object{
		"operationId": id, "summary": summary, "security": []object{{"basic": []string{}}, {"apiKey": []string{}}}, "responses": responses,
		"requestBody": object{"required": true, "content": object{"application/json": object{}, "application/x-protobuf": object{}}},
	}}
}
