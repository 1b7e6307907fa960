package web

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

// whoMay is the lowest role for each route. It is written out once more, so that nobody lowers one, or
// adds a route for everybody, by the way.
var whoMay = map[access.Role]string{
	access.Viewer: `GET /, GET /changes, GET /changes/{index}, GET /changes/{index}/mail, GET /changes/{index}/text, GET /changes/export,
		GET /live, GET /live/events, GET /policies, GET /sinks, GET /sinks/history/{sink}, GET /sinks/letters, GET /sinks/letters/{number},
		GET /states, GET /streaming, GET /streaming/{project}/{environment}`,
	access.Auditor: `GET /prove, GET /prove/policy, GET /tlog/, POST /changes/{index}/annotate`,
	access.Operator: `GET /jobs/{id}, GET /sessions, POST /jobs/{id}/stop, POST /sessions/revoke, POST /silences/add, POST /silences/end,
		POST /sinks/letters/discard, POST /sinks/letters/replay, POST /sinks/replay, POST /streaming/apply, POST /streaming/rotate`,
}

// asRole asks as whoever has a client certificate of a role's name; "nobody" shows none.
func (s *stage) asRole(t *testing.T, role, method, path string, form url.Values, headers ...string) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "https://localhost"+path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	if role != "nobody" {
		leaf := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: role}}
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}}}
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestEachRouteAsksForItsRole(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	fill(t, s, story())
	before, ask := s.trail.Size(), s.opts.Ask
	is := map[access.Role][]string{access.Viewer: {"GET " + streamPath}}
	for _, p := range pages {
		is[p.least] = append(is[p.least], "GET "+p.path)
	}
	for _, f := range feeds {
		is[f.least] = append(is[f.least], "GET "+f.path)
	}
	for _, a := range actions {
		is[a.least] = append(is[a.least], "POST "+a.path)
	}
	named := strings.NewReplacer("{index}", "1", "{sink}", "siem", "{number}", "1", "{id}", "x", "{project}", "shop", "{environment}", "live")
	for least, routes := range whoMay {
		want := strings.FieldsFunc(routes, func(r rune) bool { return strings.ContainsRune(",\n\t", r) })
		for i := range want {
			want[i] = strings.TrimSpace(want[i])
		}
		want = slices.DeleteFunc(want, func(route string) bool { return route == "" })
		require.ElementsMatch(t, want, is[least], least.String())
		for _, route := range want {
			method, path, _ := strings.Cut(route, " ")
			s.checkRoute(t, least, method, named.Replace(path), ask)
		}
	}
	assert.Equal(t, before, s.trail.Size(), "something was done")
}

// errMay is the relay's answer to whoever is let in.
var errMay = errors.New("the role is enough")

// checkRoute asks a route as everybody, by all methods. By its own method nobody gets further than to the relay.
func (s *stage) checkRoute(t *testing.T, least access.Role, method, path string, ask func(workspace.Person) (*console.Client, error)) {
	t.Helper()
	confirmed := url.Values{confirmName: {"yes"}, "hours": {"1"}, "reason": {"a drill"}, "project": {"shop"}, "environment": {"live"}, "note": {"seen"}, "since": {"2026-01-01"}}
	for _, by := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions} {
		reads := method == http.MethodGet && (by == http.MethodGet || by == http.MethodHead)
		if s.opts.Ask = ask; by == method || reads {
			s.opts.Ask = func(workspace.Person) (*console.Client, error) { return nil, errMay }
		}
		code, body := s.asRole(t, "nobody", by, path, confirmed)
		require.Equal(t, http.StatusUnauthorized, code, "nobody: %s %s: %s", by, path, body)
		for role := access.Viewer; role <= access.Operator; role++ {
			code, body := s.asRole(t, role.String(), by, path, confirmed)
			switch {
			case by != method && !reads:
				require.Equal(t, http.StatusNotFound, code, "%s: %s %s: %s", role, by, path, body)
			case role < least:
				require.Equal(t, http.StatusForbidden, code, "%s: %s %s: %s", role, by, path, body)
				require.Contains(t, body, "This takes the role "+least.String())
			default:
				require.Contains(t, body, errMay.Error(), "%s: %s %s: %d", role, by, path, code)
			}
		}
		if by == http.MethodPost {
			for _, from := range []string{"cross-site", "same-site"} { // such as a page of another name below the same domain
				code, body = s.asRole(t, "operator", by, path, confirmed, "Sec-Fetch-Site", from)
				require.Equal(t, http.StatusForbidden, code, "%s: %s %s: %s", from, by, path, body)
			}
		}
	}
}

// What takes much to read is refused by its length, and a number that is none by what it is.
func TestFormsAndAddressesAreBounded(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	fill(t, s, story())
	code, body := s.asRole(t, "operator", http.MethodPost, "/changes/1/annotate", url.Values{"note": {strings.Repeat("n", 2<<20)}})
	assert.Equal(t, http.StatusBadRequest, code)
	assert.Contains(t, body, "send a shorter one")
	for _, number := range []string{"9223372036854775807", "-9223372036854775808", "\x00", strings.Repeat("9", 1000)} {
		for _, at := range []string{"/?from=", "/changes?before=", "/changes?after=", "/states?entry=", "/states?at=", "/streaming/shop/live?days=", "/changes/export?form=csv&since="} {
			code, body := s.asRole(t, "viewer", http.MethodGet, at+url.QueryEscape(number), nil)
			assert.Less(t, code, http.StatusInternalServerError, "%s%s: %s", at, number, body)
			assert.Less(t, len(body), 200_000)
		}
	}
}
