// Package oidctest runs a real OpenID Connect provider on loopback, with people who log in by their
// name alone.
package oidctest

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"html/template"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// ClientID and ClientSecret are those of the one client, at the start.
const (
	ClientID     = "auditrelay"
	ClientSecret = "oidctest-client-secret"
)

// Claims are what the provider says of a person, by the names of claims.
type Claims map[string]any

// Provider is a running one. Its methods may be called concurrently.
type Provider struct {
	// Issuer is its address.
	Issuer string

	server *httptest.Server
	op     http.Handler
	key    *rsa.PrivateKey

	mu       sync.Mutex
	redirect []string                          // guarded by mu
	secret   string                            // the client's; guarded by mu
	people   map[string]Claims                 // by their names; guarded by mu
	requests map[string]*request               // by id; guarded by mu
	codes    map[string]string                 // ids of requests by code; guarded by mu
	tokens   map[string]string                 // names of people by access token; guarded by mu
	thin     bool                              // guarded by mu
	forge    func(Claims, *rsa.PrivateKey) any // guarded by mu
}

// Start runs a provider whose client may have people sent back to an address.
func Start(redirect ...string) (*Provider, error) { return StartAs("", redirect...) }

// StartAs runs one that calls itself by another address, which passes requests on to [Provider.ServeHTTP].
func StartAs(issuer string, redirect ...string) (*Provider, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("make the provider's key: %w", err)
	}
	p := &Provider{
		key: key, redirect: redirect, secret: ClientSecret, people: map[string]Claims{}, requests: map[string]*request{}, codes: map[string]string{}, tokens: map[string]string{},
	}
	p.server = httptest.NewServer(p)
	p.Issuer = cmp.Or(issuer, p.server.URL)
	made, err := op.NewProvider(&op.Config{
		CryptoKey: sha256.Sum256([]byte("oidctest")), CodeMethodS256: true, AuthMethodPost: true,
	}, &storage{Provider: p}, op.StaticIssuer(p.Issuer), op.WithAllowInsecure(), op.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		p.server.Close()
		return nil, fmt.Errorf("make the provider: %w", err)
	}
	p.op = made
	return p, nil
}

// Close ends it.
func (p *Provider) Close() { p.server.Close() }

// Redirects says where people may be sent back to.
func (p *Provider) Redirects(addresses ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.redirect = addresses
}

// SetSecret changes the client's secret.
func (p *Provider) SetSecret(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.secret = to
}

// Know makes a person known, or replaces what is said of one.
func (p *Provider) Know(name string, claims Claims) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.people[name] = claims
}

// Thin has the claims told by the user's info alone, and not by the ID token.
func (p *Provider) Thin(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.thin = yes
}

// Forge has each ID token's claims changed before it is signed again. change returns the key to sign
// with, or nil for a token without a signature.
func (p *Provider) Forge(change func(claims Claims, key *rsa.PrivateKey) any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forge = change
}

// ServeHTTP implements [http.Handler].
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/login":
		p.login(w, r)
	case "/oauth/token":
		p.token(w, r)
	default:
		p.op.ServeHTTP(w, r)
	}
}

var form = template.Must(template.New("").Parse(`<!DOCTYPE html><html lang="en"><title>Log in</title>
<main><h1>Log in</h1><form method="post"><input type="hidden" name="id" value="{{.ID}}">
{{range .People}}<p><button name="name" value="{{.}}">{{.}}</button></p>{{end}}</form></main></html>`))

// login asks who it is, and believes it.
func (p *Provider) login(w http.ResponseWriter, r *http.Request) {
	id, name := r.FormValue("id"), r.FormValue("name")
	p.mu.Lock()
	people := slices.Sorted(maps.Keys(p.people))
	asked := p.requests[id]
	if asked != nil && p.people[name] != nil {
		asked.name = name
	}
	p.mu.Unlock()
	if asked == nil || !slices.Contains(people, name) {
		_ = form.Execute(w, map[string]any{"ID": id, "People": people})
		return
	}
	http.Redirect(w, r, "/authorize/callback?id="+id, http.StatusFound)
}

// token answers as the provider does, with a forged ID token where that is asked for.
func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	forge := p.forge
	p.mu.Unlock()
	if forge == nil {
		p.op.ServeHTTP(w, r)
		return
	}
	honest := httptest.NewRecorder()
	p.op.ServeHTTP(honest, r)
	answer := map[string]any{}
	_ = json.Unmarshal(honest.Body.Bytes(), &answer)
	if raw, is := answer["id_token"].(string); is {
		answer["id_token"] = p.forged(raw, forge)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(honest.Code)
	_ = json.NewEncoder(w).Encode(answer)
}

func (p *Provider) forged(raw string, change func(Claims, *rsa.PrivateKey) any) string {
	signed, err := jose.ParseSignedCompact(raw, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		return raw
	}
	claims := Claims{}
	_ = json.Unmarshal(signed.UnsafePayloadWithoutVerification(), &claims)
	key := change(claims, p.key)
	payload, _ := json.Marshal(claims)
	if key == nil {
		return unsigned(payload)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", keyID))
	if err != nil {
		return raw
	}
	again, err := signer.Sign(payload)
	if err != nil {
		return raw
	}
	text, _ := again.CompactSerialize()
	return text
}

// claimsOf is what is said of a person.
func (p *Provider) claimsOf(name string) Claims {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.people[name]
}

func (p *Provider) isThin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.thin
}

// Health implements part of [op.Storage].
func (p *Provider) Health(context.Context) error { return nil }
