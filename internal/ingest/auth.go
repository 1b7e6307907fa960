package ingest

import (
	"net/http"
	"time"

	"github.com/auditrelay/auditrelay/internal/credentials"
)

const (
	headerAPIKey = "Dd-Api-Key" // canonical form of DD-API-KEY
	queryAPIKey  = "dd-api-key"
)

// claim is the credential in a push: a key, or a user name with a password.
type claim struct{ key, username, password string }

// claimOf finds the credential of a push, and whether there is any. keyInPath is the last
// segment of /v1/input/KEY. Both intakes take both kinds.
func claimOf(r *http.Request, keyInPath string) (c claim, shown bool) {
	c.key = r.Header.Get(headerAPIKey)
	if c.key == "" {
		c.key = keyInPath
	}
	if c.key == "" {
		c.key = queryValue(r.URL.RawQuery, queryAPIKey)
	}
	if c.key != "" {
		return c, true
	}
	c.username, c.password, _ = r.BasicAuth() // empty for another scheme, and so wrong
	return c, r.Header.Get("Authorization") != ""
}

// authenticate finds the environment of a push by its credential. Beside the error of a
// wrong one, it returns the environment with that user name, if there is one.
func (h *Handler) authenticate(r *http.Request, e endpoint, keyInPath string) (credentials.Environment, error) {
	c, shown := claimOf(r, keyInPath)
	if !shown && h.anonymous != (credentials.Environment{}) {
		return h.anonymous, nil
	}
	if !shown {
		h.metrics.unauthorized.WithLabelValues("", "", "missing").Inc()
		return credentials.Environment{}, &refusal{status: http.StatusUnauthorized, reason: "unauthorized", hangUp: true, text: "a credential is missing"}
	}
	if env, ok := h.check(c); ok {
		return env, nil
	}
	owner, _ := h.credentials.Owner(c.username)
	h.metrics.unauthorized.WithLabelValues(owner.Project, owner.Environment, "wrong").Inc()
	return owner, denied(e, h.guesses.failed(r, c, owner))
}

func (h *Handler) check(c claim) (credentials.Environment, bool) {
	if c.key != "" {
		return h.credentials.APIKey(c.key)
	}
	return h.credentials.Basic(c.username, c.password)
}

// wait holds an answer back until the client is gone or the server shuts down.
func (h *Handler) wait(r *http.Request, delay time.Duration) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	case <-h.stopping:
	}
}

// denied is the late answer to a wrong credential, without the reason. Datadog tells a
// wrong one (403) from a missing one (401).
func denied(e endpoint, delay time.Duration) *refusal {
	r := &refusal{status: http.StatusUnauthorized, reason: "unauthorized", logged: true, hangUp: true, delay: delay, text: "the credential is not valid"}
	if e != lokiPush {
		r.status = http.StatusForbidden
	}
	return r
}
