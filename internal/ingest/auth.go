package ingest

import (
	"net/http"
	"time"

	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
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

// authenticate finds the environment of a push by its credential. With the error of a
// wrong one, it returns the environment with that user name, if there is one.
func (h *Handler) authenticate(r *http.Request, e *endpoint, keyInPath string) (credentials.Environment, error) {
	c, shown := claimOf(r, keyInPath)
	if !shown && h.anonymous != (credentials.Environment{}) {
		if byBrowser(r) {
			h.metrics.unauthorized.WithLabelValues("", "", "missing").Inc()
			return credentials.Environment{}, errBrowser
		}
		return h.anonymous, nil
	}
	if !shown {
		h.metrics.unauthorized.WithLabelValues("", "", "missing").Inc()
		return credentials.Environment{}, &refusal{status: http.StatusUnauthorized, reason: "unauthorized", hangUp: true, text: "a credential is missing"}
	}
	if env, ok := h.check(c); ok {
		return env, nil
	}
	if env, ok := h.credentials.Former(c.username, c.password); ok {
		h.metrics.unauthorized.WithLabelValues(env.Project, env.Environment, "not_configured").Inc()
		return env, formerly(e)
	}
	owner, _ := h.credentials.Owner(c.username)
	h.metrics.unauthorized.WithLabelValues(owner.Project, owner.Environment, "wrong").Inc()
	return owner, denied(e, h.guesses.failed(r, c, owner))
}

// byBrowser reports whether a web page may have made a request: a browser adds Origin to
// each POST, and newer ones Sec-Fetch-Site. A page of any site, its name pointed at this
// listener or not, could push otherwise. Without a Content-Type, an older browser asks no
// leave of the listener for a request to another site.
func byBrowser(r *http.Request) bool {
	return r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" || r.Header.Get("Content-Type") == ""
}

var errBrowser = &refusal{
	status: http.StatusForbidden, reason: "browser", hangUp: true,
	text: "without a credential, pushes of web pages are refused: send a Content-Type, and neither Origin nor Sec-Fetch-Site",
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

// formerly is the answer to the environment's own credential after the environment was
// taken out of the configuration. Its sender has proven who it is, so it is told why, and
// the log names the environment.
func formerly(e *endpoint) *refusal {
	return &refusal{
		status: e.denied, reason: "not_configured", hangUp: true, delay: firstDelay,
		text: "this environment is not in the relay's configuration: put it back under environments, or stream its event log elsewhere",
	}
}

// denied is the late answer to a wrong credential, without the reason. Datadog tells a
// wrong one (403) from a missing one (401).
func denied(e *endpoint, delay time.Duration) *refusal {
	return &refusal{status: e.denied, reason: "unauthorized", logged: true, hangUp: true, delay: delay, text: "the credential is not valid"}
}
