package access

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

const (
	// providerPatience bounds one exchange with the provider.
	providerPatience = 10 * time.Second
	// providerLasts is how long what the provider says of itself is used.
	providerLasts = 10 * time.Minute
	// longestAnswer bounds an answer of the provider, in bytes.
	longestAnswer = 1 << 20
)

// provider logs people in. Nothing is asked of it until somebody logs in, and each login asks again
// what could not be had before: so it may be down while the relay starts.
type provider struct {
	cfg      config.OIDC
	redirect string
	client   *http.Client
	secret   atomic.Pointer[secret.Text] // the client's

	found atomic.Pointer[discovered]
}

// discovered is what the provider said of itself, and when.
type discovered struct {
	*oidc.Provider
	at time.Time
}

func newProvider(cfg *config.OIDC, consoleURL string) (*provider, error) {
	if cfg == nil {
		return nil, nil //nolint:nilnil // no provider is configured
	}
	transport, err := cfg.TLS.Transport(http.DefaultTransport.(*http.Transport).Clone()) //nolint:errcheck // it is one
	if err != nil {
		return nil, fmt.Errorf("console.oidc: %w", err)
	}
	p := &provider{cfg: *cfg, redirect: strings.TrimSuffix(consoleURL, "/") + callbackPath, client: &http.Client{
		Transport: short{transport}, Timeout: providerPatience,
		// The client's secret goes nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	p.secret.Store(&cfg.ClientSecret)
	return p, nil
}

// short bounds the answers of a provider.
type short struct{ next http.RoundTripper }

func (s short) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.next.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, longestAnswer), resp.Body}
	}
	return resp, err
}

// host is the provider's name for people.
func (p *provider) host() string {
	u, err := url.Parse(p.cfg.Issuer)
	if err != nil {
		return p.cfg.Issuer // validation refuses such a one
	}
	return u.Host
}

// discover asks the provider about itself. Logins at the same moment may each ask, since a login
// that waited for another one's question would wait for each before it while the provider hangs.
func (p *provider) discover(ctx context.Context) (*oidc.Provider, error) {
	if last := p.found.Load(); last != nil && time.Since(last.at) < providerLasts {
		return last.Provider, nil
	}
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, p.client), p.cfg.Issuer)
	if err != nil {
		return nil, err
	}
	var at struct {
		Authorization string `json:"authorization_endpoint"`
		Token         string `json:"token_endpoint"`
		Keys          string `json:"jwks_uri"`
	}
	if err := found.Claims(&at); err != nil {
		return nil, err
	}
	for _, address := range []string{at.Authorization, at.Token, at.Keys} {
		u, err := url.Parse(address)
		if err != nil || u.Scheme != "https" && (u.Scheme != "http" || !config.IsLoopback(u.Hostname())) {
			return nil, fmt.Errorf("the provider names the address %q, which is not https", address)
		}
	}
	p.found.Store(&discovered{found, time.Now()})
	return found, nil
}

func (p *provider) oauth(found *oidc.Provider) *oauth2.Config {
	return &oauth2.Config{
		ClientID: p.cfg.ClientID, ClientSecret: p.secret.Load().Reveal(), Endpoint: found.Endpoint(),
		RedirectURL: p.redirect, Scopes: append([]string{oidc.ScopeOpenID}, p.cfg.Scopes...),
	}
}

// flow is a login that has begun. The browser keeps it in a cookie, so that the relay keeps nothing
// for people who are not known yet.
type flow struct{ State, Nonce, Verifier, Next string }

// authorize is the provider's address to send a person to.
func (p *provider) authorize(ctx context.Context, f flow) (string, error) {
	found, err := p.discover(ctx)
	if err != nil {
		return "", err
	}
	return p.oauth(found).AuthCodeURL(f.State, oidc.Nonce(f.Nonce), oauth2.S256ChallengeOption(f.Verifier)), nil
}

// errNoRole means that a person is known, and has no role here.
var errNoRole = errors.New("no rule gives a role")

// identify exchanges the code that a person came back with, and checks what the provider says of
// the person: its signature, issuer, audience, time and nonce.
func (p *provider) identify(ctx context.Context, f flow, code string) (by audit.Person, role Role, err error) {
	found, err := p.discover(ctx)
	if err != nil {
		return by, 0, err
	}
	ctx = oidc.ClientContext(ctx, p.client)
	tokens, err := p.oauth(found).Exchange(ctx, code, oauth2.VerifierOption(f.Verifier))
	if err != nil {
		return by, 0, fmt.Errorf("exchange the code: %w", withoutBody(err))
	}
	raw, _ := tokens.Extra("id_token").(string)
	token, err := found.VerifierContext(ctx, &oidc.Config{ClientID: p.cfg.ClientID}).Verify(ctx, raw)
	if err != nil {
		return by, 0, fmt.Errorf("verify the ID token: %w", err)
	}
	if f.Nonce == "" || subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(f.Nonce)) != 1 {
		return by, 0, errors.New("the ID token is of another login: its nonce differs")
	}
	claims := map[string]any{}
	if err := token.Claims(&claims); err != nil {
		return by, 0, fmt.Errorf("read the ID token: %w", err)
	}
	if p.roleOf(claims) == 0 && found.UserInfoEndpoint() != "" {
		if err := p.ask(ctx, found, tokens, token.Subject, claims); err != nil {
			return by, 0, err
		}
	}
	by = p.personOf(token.Subject, claims)
	if role = p.roleOf(claims); role == 0 {
		return by, 0, fmt.Errorf("%w: %s", errNoRole, p.missing(claims))
	}
	return by, role, nil
}

// withoutBody leaves out what the provider's answer says, which may repeat what it was sent.
func withoutBody(err error) error {
	var refused *oauth2.RetrieveError
	if errors.As(err, &refused) {
		return fmt.Errorf("the provider answered %s %s", refused.Response.Status, refused.ErrorCode)
	}
	return err
}

// ask adds the claims of the user's info to those of the ID token, which some providers keep short.
func (p *provider) ask(ctx context.Context, found *oidc.Provider, tokens *oauth2.Token, subject string, claims map[string]any) error {
	info, err := found.UserInfo(ctx, oauth2.StaticTokenSource(tokens))
	if err != nil {
		return fmt.Errorf("read the user's info: %w", err)
	}
	if info.Subject != subject {
		return errors.New("the user's info is of another person than the ID token")
	}
	more := map[string]any{}
	if err := info.Claims(&more); err != nil {
		return fmt.Errorf("read the user's info: %w", err)
	}
	const verified = "email_verified" // it goes with its own address, and with no other one
	switch email, known := claims["email"]; {
	case !known:
		delete(claims, verified)
	case !reflect.DeepEqual(email, more["email"]):
		delete(more, verified)
	}
	for name, value := range more {
		if _, known := claims[name]; !known {
			claims[name] = value
		}
	}
	return nil
}

// roleOf is the highest role that the rules give.
func (p *provider) roleOf(claims map[string]any) (role Role) {
	for _, rule := range p.cfg.Roles {
		if granted(rule.Role) > role && slices.Contains(valuesOf(claims, rule.Claim), rule.Value) {
			role = granted(rule.Role)
		}
	}
	return role
}

// valuesOf are the texts of a claim. An e-mail address that nobody has verified may be anybody's.
func valuesOf(claims map[string]any, name string) (values []string) {
	if verified := claims["email_verified"]; name == "email" && verified != true && verified != "true" {
		return nil
	}
	switch v := claims[name].(type) {
	case string:
		return []string{v}
	case []any:
		for _, element := range v {
			if text, is := element.(string); is {
				values = append(values, text)
			}
		}
	}
	return values
}

func (p *provider) personOf(subject string, claims map[string]any) audit.Person {
	name := subject
	for _, claim := range []string{"email", p.cfg.UserClaim} {
		if values := valuesOf(claims, claim); len(values) == 1 && values[0] != "" {
			name = values[0]
		}
	}
	return audit.Person{User: bounded(name), Host: p.host(), By: audit.ByOIDC, Subject: bounded(subject)}
}

// missing tells a person which claims would have given a role, and what is there instead.
func (p *provider) missing(claims map[string]any) string {
	wanted := map[string][]string{}
	for _, rule := range p.cfg.Roles {
		wanted[rule.Claim] = append(wanted[rule.Claim], rule.Value)
	}
	var parts []string
	for _, claim := range slices.Sorted(maps.Keys(wanted)) {
		has := valuesOf(claims, claim)
		for i := range has {
			has[i] = bounded(has[i])
		}
		parts = append(parts, fmt.Sprintf("%s has to be one of %s, and your account has %s", claim,
			strings.Join(wanted[claim], ", "), cmp.Or(strings.Join(has[:min(len(has), 20)], ", "), "none")))
	}
	return strings.Join(parts, "; ")
}
