package app

import (
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/oidctest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// files are those of a client of an authority's servers, with more.
func (a *authority) files(name string, more map[string]string) map[string]string {
	all := map[string]string{"push": "the-push-password", "ca.crt": pemOf(a.cert)}
	all["tls.crt"], all["tls.key"] = a.pair(name)
	for file, text := range more {
		all[file] = text
	}
	return all
}

// The authorities and the certificate for a witness are followed. Broken ones leave those before in
// use, with which the witness goes on to cosign.
func TestChangedFilesOfAWitnessAreUsed(t *testing.T) {
	t.Parallel()
	keyFile := filepath.Join(t.TempDir(), "audit.key")
	key, err := audit.GenerateKey(keyFile, "relay.example.com/acme")
	require.NoError(t, err)
	w := newWitness(t, "other.example.com/w", key)
	at, err := url.Parse(w.URL)
	require.NoError(t, err)
	first, second := newAuthority(t), newAuthority(t)
	front, address := newMutual(t, first)
	front.next = httputil.NewSingleHostReverseProxy(at)
	r, v, log := startOnFiles(t, `
ingest: {listen: "127.0.0.1:0"}
admin: {listen: "127.0.0.1:0"}
audit:
  key_file: `+keyFile+`
  witnesses: [{url: "`+address+`", key: "`+w.Key+`", tls: {ca_file: DIR/ca.crt, cert_file: DIR/tls.crt, key_file: DIR/tls.key}}]
sinks:
`, first.files("one", nil))
	cosigned := func() {
		t.Helper()
		r.cosignedWhole("other.example.com/w", annotate(t, &config.Config{DataDir: r.data}))
	}
	r.cosignedWhole("other.example.com/w", 0)
	assert.Equal(t, "one", front.last())

	v.put(first.files("two", map[string]string{"ca.crt": "half a certif"}))
	waiting.Until(t, func() bool { return r.usable() == "0" })
	r.awaitReady("audit.witnesses[0].tls: read CA file ")
	cosigned()

	v.put(second.files("three", nil))
	waiting.Until(t, func() bool { return r.usable() == "1" })
	front.trust(second)
	cosigned()
	assert.Equal(t, "three", front.last())
	assert.Equal(t, 1, log.count("changed files cannot be used"), "it is said once")
	require.NoError(t, r.stop())
}

// logIn has a person go from the console to the provider and back, and returns what the console says.
func logIn(t *testing.T, at string, provider *mutual) string {
	t.Helper()
	trust, err := provider.client("browser")
	require.NoError(t, err)
	browser := &http.Client{Transport: &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true}, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if r.URL.Host == at || via[0].URL.Host == at {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	type page struct {
		url, onward, text string
		cookies           []*http.Cookie
	}
	get := func(to string, cookies ...*http.Cookie) page {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, to, http.NoBody)
		require.NoError(t, err)
		for _, c := range cookies {
			req.AddCookie(c)
		}
		resp, err := browser.Do(req)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return page{resp.Request.URL.String(), resp.Header.Get("Location"), string(text), resp.Cookies()}
	}
	begun := get("http://" + at + "/login/provider")
	form := get(begun.onward)
	back := get(form.url + "&name=ann")
	return get(back.onward, begun.cookies...).text
}

// The authorities, the certificate and the secret for the provider that people log in at are followed,
// and a reload uses them at once. Broken ones leave those before in use.
func TestChangedFilesOfAProviderAreUsed(t *testing.T) {
	t.Parallel()
	first, second := newAuthority(t), newAuthority(t)
	front, issuer := newMutual(t, first)
	at := freeAddress(t)
	provider, err := oidctest.StartAs(issuer, "http://"+at+"/login/callback")
	require.NoError(t, err)
	t.Cleanup(provider.Close)
	provider.Know("ann", oidctest.Claims{"groups": "sre", "preferred_username": "ann"})
	front.next = provider
	secret := func(text string) map[string]string { return map[string]string{"secret": text} }
	r, v, log := startOnFiles(t, `
ingest: {listen: "127.0.0.1:0"}
admin: {listen: "127.0.0.1:0"}
console:
  listen: `+at+`
  url: http://`+at+`
  oidc:
    issuer: `+issuer+`
    client_id: `+oidctest.ClientID+`
    client_secret: file:DIR/secret
    roles: [{role: operator, value: sre}]
    tls: {ca_file: DIR/ca.crt, cert_file: DIR/tls.crt, key_file: DIR/tls.key}
sinks:
`, first.files("one", secret(oidctest.ClientSecret)))
	in := func(name string) {
		t.Helper()
		assert.Contains(t, logIn(t, at, front), "You are logged in", log.text.String())
		assert.True(t, front.wasShown(name), name)
	}
	in("one")

	provider.SetSecret("the-second-secret")
	assert.Contains(t, logIn(t, at, front), "could not be verified")
	v.put(first.files("two", secret("the-second-secret\n")))
	done, err := console.NewClient(r.data).Reload(t.Context(), console.Reload{})
	require.NoError(t, err)
	require.True(t, done.Applied)
	in("two")

	v.put(first.files("three", map[string]string{"secret": "", "ca.crt": "half a certif"}))
	waiting.Until(t, func() bool { return r.usable() == "0" })
	r.awaitReady("console.oidc.tls: read CA file ")
	in("three")

	v.put(second.files("four", secret("the-third-secret")))
	waiting.Until(t, func() bool { return r.usable() == "1" })
	provider.SetSecret("the-third-secret")
	front.trust(second)
	in("four")
	assert.NotContains(t, log.text.String(), "-secret")
	require.NoError(t, r.stop())
}
