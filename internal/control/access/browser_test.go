package access

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// browser keeps cookies by the rules that matter here: a strict cookie goes along only if every
// page of a chain of redirects, and the one that began it, is of the cookie's own site; a lax one
// goes along when another site leads here.
type browser struct {
	t       *testing.T
	cookies map[string]*http.Cookie // by site and name
	certs   []tls.Certificate
}

func newBrowser(t *testing.T) *browser {
	return &browser{t: t, cookies: map[string]*http.Cookie{}}
}

// seen is a page as the browser shows it at last.
type seen struct {
	url    *url.URL
	status int
	text   string
}

// request makes one request, and keeps the cookies of the answer.
func (b *browser) request(method, to string, crossSite bool) *http.Response {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, to, http.NoBody)
	require.NoError(b.t, err)
	req.Header.Set("Sec-Fetch-Site", "none")
	if crossSite {
		req.Header.Set("Sec-Fetch-Site", "cross-site")
	}
	for key, c := range b.cookies {
		if strings.HasPrefix(key, req.URL.Host+" ") && (!crossSite || c.SameSite == http.SameSiteLaxMode) {
			req.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
		}
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: b.certs}, DisableKeepAlives: true} //nolint:gosec // of the test
	resp, err := transport.RoundTrip(req)
	require.NoError(b.t, err)
	for _, c := range resp.Cookies() {
		key := req.URL.Host + " " + c.Name
		if c.MaxAge < 0 {
			delete(b.cookies, key)
		} else if b.cookies[key] = c; strings.HasPrefix(c.Name, "__Host-") {
			require.True(b.t, c.Secure && c.HttpOnly && c.Path == "/" && c.Domain == "")
		}
	}
	return resp
}

var onward = regexp.MustCompile(`http-equiv="refresh" content="0;url=([^"]*)"`)

// visit follows redirects, and the page that goes on by itself.
func (b *browser) visit(to string) seen {
	b.t.Helper()
	from, chain := "", false
	for range 12 {
		at, err := url.Parse(to)
		require.NoError(b.t, err)
		chain = chain || from != "" && from != at.Host
		resp := b.request(http.MethodGet, to, chain)
		body, err := io.ReadAll(resp.Body)
		require.NoError(b.t, err)
		require.NoError(b.t, resp.Body.Close())
		switch location, err := resp.Location(); {
		case err == nil && strings.HasSuffix(location.Path, "/login") && location.Query().Has("id"):
			return seen{location, resp.StatusCode, ""} // the provider asks who it is
		case err == nil:
			from, to = at.Host, location.String()
		case onward.Match(body):
			next, err := at.Parse(string(onward.FindSubmatch(body)[1]))
			require.NoError(b.t, err)
			from, chain, to = at.Host, false, next.String()
		default:
			return seen{at, resp.StatusCode, string(body)}
		}
	}
	require.Fail(b.t, "the redirects do not end", to)
	return seen{}
}

// logIn begins at the console, and says at the provider who it is.
func (b *browser) logIn(console, name string) seen {
	b.t.Helper()
	form := b.visit(console + providerPath)
	if form.url == nil || !form.url.Query().Has("id") {
		return form
	}
	q := form.url.Query()
	q.Set("name", name)
	form.url.RawQuery = q.Encode()
	return b.visit(form.url.String())
}
