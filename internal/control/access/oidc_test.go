package access

import (
	"crypto/rsa"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/oidctest"
)

// An issuer is compared byte by byte: one with a slash at its end is another one than without.
func TestAnIssuerWithASlashAtItsEnd(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	s.Access.provider.cfg.Issuer += "/"
	page := newBrowser(t).visit(s.server.URL + providerPath)
	assert.Equal(t, http.StatusBadGateway, page.status)
	assert.Contains(t, s.log.String(), "did not match the issuer URL returned by provider")

	var next http.Handler
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r) }))
	t.Cleanup(front.Close)
	slashed, err := oidctest.StartAs(front.URL+"/", s.server.URL+callbackPath)
	require.NoError(t, err)
	t.Cleanup(slashed.Close)
	next = slashed
	slashed.Know("ann", oidctest.Claims{"groups": []string{"sre"}})
	s.cfg.OIDC.Issuer = slashed.Issuer
	s.open(t)
	assert.Contains(t, newBrowser(t).logIn(s.server.URL, "ann").text, "/ operator")
}

// A group is one value, whatever is in it; and what a token says at length is kept in short.
func TestClaimsOfOtherForms(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	many := []string{"sre"}
	for i := range 20_000 {
		many = append(many, fmt.Sprintf("team-%d", i))
	}
	long := strings.Repeat("n", 50_000)
	for name, claims := range map[string]oidctest.Claims{
		"listed":  {"groups": "staff,sre"},
		"spaced":  {"groups": "staff sre"},
		"nested":  {"groups": []any{[]string{"sre"}, map[string]any{"name": "sre"}, 7, nil}},
		"roles":   {"groups": map[string]any{"sre": true}},
		"truth":   {"groups": true},
		"folded":  {"groups": []string{"SRE", "sre ", "sre\u200b"}},
		"claimed": {"email": "ada@shop.example", "email_verified": "false"},
	} {
		s.provider.Know(name, claims)
		page := newBrowser(t).logIn(s.server.URL, name)
		assert.Equal(t, http.StatusForbidden, page.status, "%s: %s", name, page.text)
		s.attempts = attempts{}
	}
	require.Empty(t, s.Sessions())

	s.provider.Know("max", oidctest.Claims{"groups": many, "preferred_username": long})
	assert.Contains(t, newBrowser(t).logIn(s.server.URL, "max").text, "/ operator")
	require.Len(t, s.Sessions(), 1)
	assert.Len(t, s.Sessions()[0].Person.User, longestName)
	s.provider.Know("max", oidctest.Claims{"groups": many[1:], "preferred_username": long})
	page := newBrowser(t).logIn(s.server.URL, "max")
	assert.Equal(t, http.StatusForbidden, page.status)
	assert.Less(t, len(page.text)+len(s.log.String()), 20_000)

	s.provider.Know("max", oidctest.Claims{"groups": many, "more": strings.Repeat("m", longestAnswer)})
	assert.Equal(t, http.StatusForbidden, newBrowser(t).logIn(s.server.URL, "max").status, "a token without a bound is read")
}

// An address in a token that nobody has verified stays so, where the user's info has verified another one.
func TestAnAddressThatAnotherOneVerifies(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	s.provider.Know("eve", oidctest.Claims{"email": "eve@shop.example", "email_verified": true})
	s.provider.Forge(func(c oidctest.Claims, key *rsa.PrivateKey) any {
		c["email"] = "ada@shop.example"
		delete(c, "email_verified")
		return key
	})
	page := newBrowser(t).logIn(s.server.URL, "eve")
	assert.Equal(t, http.StatusForbidden, page.status, page.text)
	s.provider.Know("max", oidctest.Claims{"email": "ada@shop.example"})
	s.provider.Forge(func(c oidctest.Claims, key *rsa.PrivateKey) any {
		delete(c, "email")
		c["email_verified"] = true
		return key
	})
	page = newBrowser(t).logIn(s.server.URL, "max")
	assert.Equal(t, http.StatusForbidden, page.status, page.text)
	s.attempts = attempts{}
	s.provider.Forge(func(c oidctest.Claims, key *rsa.PrivateKey) any { delete(c, "email_verified"); return key })
	s.provider.Know("ada", oidctest.Claims{"email": "ada@shop.example", "email_verified": true})
	assert.Contains(t, newBrowser(t).logIn(s.server.URL, "ada").text, "/ auditor", "the address that was verified")
}

// The relay's clock and the provider's need not be the same to the second, and a token is over when it
// says so.
func TestClocksThatDiffer(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	for shift, want := range map[time.Duration]int{2 * time.Minute: http.StatusOK, -2 * time.Minute: http.StatusOK, time.Hour: http.StatusForbidden, -time.Hour: http.StatusForbidden} {
		s.provider.Forge(func(c oidctest.Claims, key *rsa.PrivateKey) any {
			theirs := time.Now().Add(shift)
			c["iat"], c["nbf"], c["exp"] = theirs.Unix(), theirs.Unix(), theirs.Add(10*time.Minute).Unix()
			return key
		})
		assert.Equal(t, want, newBrowser(t).logIn(s.server.URL, "ann").status, "a clock that differs by %s", shift)
	}
}

// A provider that hangs keeps no login waiting for the ones before it.
func TestLoginsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	const logins = 3
	s := newStand(t)
	var asked sync.WaitGroup
	asked.Add(logins)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Done()
		asked.Wait() // until all of them ask at the same time
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(front.Close)
	s.Access.provider.cfg.Issuer = front.URL
	failed := make(chan error, logins)
	for range logins {
		go func() {
			_, err := s.Access.provider.authorize(t.Context(), flow{})
			failed <- err
		}()
	}
	for range logins {
		assert.ErrorContains(t, <-failed, "503")
	}
}
