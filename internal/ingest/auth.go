package ingest

import (
	"net/http"

	"github.com/auditrelay/auditrelay/internal/credentials"
)

const (
	headerAPIKey = "Dd-Api-Key" // canonical form of DD-API-KEY
	queryAPIKey  = "dd-api-key"
)

// authenticate tells the environment of a push by its credential; keyInPath
// is the last segment of /v1/input/KEY. Both intakes take both kinds of it.
func (h *Handler) authenticate(r *http.Request, e endpoint, keyInPath string) (credentials.Environment, error) {
	key := r.Header.Get(headerAPIKey)
	if key == "" {
		key = keyInPath
	}
	if key == "" && r.URL.RawQuery != "" {
		key = r.URL.Query().Get(queryAPIKey)
	}
	if key != "" {
		if env, ok := h.credentials.APIKey(key); ok {
			return env, nil
		}
		return credentials.Environment{}, denied(e)
	}
	if r.Header.Get("Authorization") != "" {
		username, password, ok := r.BasicAuth()
		if ok {
			if env, ok := h.credentials.Basic(username, password); ok {
				return env, nil
			}
		}
		return credentials.Environment{}, denied(e)
	}
	if h.anonymous == (credentials.Environment{}) {
		return credentials.Environment{}, &refusal{status: http.StatusUnauthorized, reason: "unauthorized", hangUp: true, text: "a credential is missing"}
	}
	return h.anonymous, nil
}

// denied is the answer to a wrong credential. It does not tell what is wrong
// with it. Datadog tells a wrong one (403) from a missing one (401).
func denied(e endpoint) *refusal {
	r := &refusal{status: http.StatusUnauthorized, reason: "unauthorized", hangUp: true, text: "the credential is not valid"}
	if e != lokiPush {
		r.status = http.StatusForbidden
	}
	return r
}
