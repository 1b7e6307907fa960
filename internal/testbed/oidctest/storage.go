package oidctest

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const keyID = "oidctest"

// storage keeps in memory what the code flow needs. Its other methods are not called.
type storage struct {
	op.Storage
	*Provider
}

// request is a login that has begun.
type request struct {
	oidc.AuthRequest
	id, name string
}

func (r *request) GetID() string                      { return r.id }
func (r *request) GetACR() string                     { return "" }
func (r *request) GetAMR() []string                   { return []string{"pwd"} }
func (r *request) GetAudience() []string              { return []string{r.ClientID} }
func (r *request) GetAuthTime() time.Time             { return time.Now() }
func (r *request) GetClientID() string                { return r.ClientID }
func (r *request) GetNonce() string                   { return r.Nonce }
func (r *request) GetRedirectURI() string             { return r.RedirectURI }
func (r *request) GetResponseType() oidc.ResponseType { return r.ResponseType }
func (r *request) GetResponseMode() oidc.ResponseMode { return r.ResponseMode }
func (r *request) GetScopes() []string                { return r.Scopes }
func (r *request) GetState() string                   { return r.State }
func (r *request) GetSubject() string                 { return "sub-of-" + r.name }
func (r *request) Done() bool                         { return r.name != "" }
func (r *request) GetCodeChallenge() *oidc.CodeChallenge {
	return &oidc.CodeChallenge{Challenge: r.CodeChallenge, Method: r.CodeChallengeMethod}
}

var errUnknown = errors.New("unknown")

func (s *storage) Health(ctx context.Context) error { return s.Provider.Health(ctx) }

func (s *storage) CreateAuthRequest(_ context.Context, r *oidc.AuthRequest, _ string) (op.AuthRequest, error) {
	made := &request{AuthRequest: *r, id: rand.Text()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[made.id] = made
	return made, nil
}

func (s *storage) AuthRequestByID(_ context.Context, id string) (op.AuthRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.requests[id]; r != nil {
		return r, nil
	}
	return nil, errUnknown
}

func (s *storage) AuthRequestByCode(ctx context.Context, code string) (op.AuthRequest, error) {
	s.mu.Lock()
	id := s.codes[code]
	s.mu.Unlock()
	return s.AuthRequestByID(ctx, id)
}

func (s *storage) SaveAuthCode(_ context.Context, id, code string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.codes[code] = id
	return nil
}

// DeleteAuthRequest is called once the code was exchanged: it is good once.
func (s *storage) DeleteAuthRequest(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.requests, id)
	return nil
}

func (s *storage) CreateAccessToken(_ context.Context, r op.TokenRequest) (string, time.Time, error) {
	id := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[id] = r.GetSubject()
	return id, time.Now().Add(time.Minute), nil
}

type signing struct{ *Provider }

func (signing) SignatureAlgorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (signing) Algorithm() jose.SignatureAlgorithm          { return jose.RS256 }
func (signing) ID() string                                  { return keyID }
func (signing) Use() string                                 { return "sig" }

type private struct{ signing }

func (k private) Key() any { return k.key }

type public struct{ signing }

func (k public) Key() any { return &k.key.PublicKey }

func (s *storage) SigningKey(context.Context) (op.SigningKey, error) {
	return private{signing{s.Provider}}, nil
}

func (s *storage) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{jose.RS256}, nil
}

func (s *storage) KeySet(context.Context) ([]op.Key, error) {
	return []op.Key{public{signing{s.Provider}}}, nil
}

func (s *storage) GetClientByClientID(_ context.Context, id string) (op.Client, error) {
	if id != ClientID {
		return nil, errUnknown
	}
	return client{s.Provider}, nil
}

func (s *storage) AuthorizeClientIDSecret(_ context.Context, id, secret string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != ClientID || subtle.ConstantTimeCompare([]byte(secret), []byte(s.secret)) != 1 {
		return errUnknown
	}
	return nil
}

func (s *storage) SetUserinfoFromScopes(context.Context, *oidc.UserInfo, string, string, []string) error {
	return nil
}

func (s *storage) SetUserinfoFromRequest(_ context.Context, info *oidc.UserInfo, r op.IDTokenRequest, _ []string) error {
	s.tell(info, r.GetSubject())
	return nil
}

func (s *storage) SetUserinfoFromToken(_ context.Context, info *oidc.UserInfo, _, subject, _ string) error {
	s.tell(info, subject)
	return nil
}

func (s *storage) tell(info *oidc.UserInfo, subject string) {
	info.Subject = subject
	for name, value := range s.claimsOf(subject[len("sub-of-"):]) {
		info.AppendClaims(name, value)
	}
}

func (s *storage) GetPrivateClaimsFromScopes(context.Context, string, string, []string) (map[string]any, error) {
	return nil, nil
}

// client is the relay's.
type client struct{ *Provider }

func (c client) GetID() string { return ClientID }
func (c client) RedirectURIs() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.redirect
}
func (client) PostLogoutRedirectURIs() []string    { return nil }
func (client) ApplicationType() op.ApplicationType { return op.ApplicationTypeWeb }
func (client) AuthMethod() oidc.AuthMethod         { return oidc.AuthMethodBasic }
func (client) ResponseTypes() []oidc.ResponseType  { return []oidc.ResponseType{oidc.ResponseTypeCode} }

func (client) GrantTypes() []oidc.GrantType           { return []oidc.GrantType{oidc.GrantTypeCode} }
func (client) LoginURL(id string) string              { return "/login?id=" + id }
func (client) AccessTokenType() op.AccessTokenType    { return op.AccessTokenTypeBearer }
func (client) IDTokenLifetime() time.Duration         { return time.Minute }
func (client) DevMode() bool                          { return true }
func (client) IsScopeAllowed(string) bool             { return true }
func (c client) IDTokenUserinfoClaimsAssertion() bool { return !c.isThin() }
func (client) ClockSkew() time.Duration               { return 0 }

func (client) RestrictAdditionalIdTokenScopes() func([]string) []string { //nolint:revive,staticcheck // named by the interface
	return func(scopes []string) []string { return scopes }
}

func (client) RestrictAdditionalAccessTokenScopes() func([]string) []string {
	return func(scopes []string) []string { return scopes }
}

// unsigned is a token that nobody has signed.
func unsigned(payload []byte) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode(payload) + "."
}
