package cli

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/trail/verify"
)

// tokenVariable has the token of a guarded /tlog/, unless --token-file names a file.
const tokenVariable = "AUDITRELAY_TLOG_TOKEN"

// siteFlags say where a trail is served, with the credential for it.
type siteFlags struct {
	url, tokenFile string
}

func (f *siteFlags) addTo(cmd *cobra.Command, about string) {
	cmd.Flags().StringVar(&f.url, "url", "", about)
	cmd.Flags().StringVar(&f.tokenFile, "token-file", "",
		"a `FILE` with the bearer token of --url (audit.serve.token or admin.token of the relay); default $"+tokenVariable)
	before(cmd, func() error {
		if f.tokenFile != "" && f.url == "" {
			return errors.New("--token-file needs --url")
		}
		return nil
	})
}

// open finds the trail at the URL.
func (f *siteFlags) open(cmd *cobra.Command) (verify.Fetch, []string, error) {
	client := &http.Client{Timeout: 2 * time.Minute}
	token, err := f.token(cmd)
	if err != nil {
		return nil, nil, err
	}
	if !token.Empty() {
		at, err := url.Parse(f.url)
		if err != nil {
			return nil, nil, fmt.Errorf("--url: %w", err)
		}
		client.Transport = bearer{token: token, scheme: at.Scheme, host: at.Host}
	}
	fetch, dirs, err := verify.Site(cmd.Context(), client, f.url)
	if errors.Is(err, verify.ErrRefused) {
		err = fmt.Errorf("%w: give the token for /tlog/ with --token-file FILE or %s", err, tokenVariable)
	}
	return fetch, dirs, err
}

func (f *siteFlags) token(cmd *cobra.Command) (secret.Text, error) {
	if f.tokenFile != "" {
		return readSecret(cmd, f.tokenFile)
	}
	return secret.New(os.Getenv(tokenVariable)), nil
}

// bearer sends a token to one host, and to no target of a redirect.
type bearer struct {
	token        secret.Text
	scheme, host string
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == b.scheme && r.URL.Host == b.host {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token.Reveal())
	}
	return http.DefaultTransport.RoundTrip(r)
}
