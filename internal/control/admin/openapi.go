package admin

import (
	"bytes"
	_ "embed"
	"net/http"
)

//go:embed openapi.json
var openAPI []byte

// OpenAPI returns the description (OpenAPI 3.1) of the HTTP endpoints: those of the private listener,
// and those that take pushes. It is made from the types of the answers, and held against real ones.
func OpenAPI() []byte { return bytes.Clone(openAPI) }

func describe(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI) // the client has gone
}
