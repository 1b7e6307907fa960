package cli

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
)

func newHealthcheck() *cobra.Command {
	var url string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask a running relay whether it is ready",
		Long: `Asks a running relay whether it is ready: a health check for containers without a
shell or curl. With admin.tls, ask https://127.0.0.1:PORT/readyz.

Exit codes: 0 it answered 2xx, 1 it did not, 64 wrong usage.`,
		Example: `  auditrelay healthcheck
  auditrelay healthcheck --url http://127.0.0.1:9100/healthz --timeout 2s`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return healthcheck(ctx, url)
		},
	}
	cmd.Flags().StringVar(&url, "url", "http://127.0.0.1:9100/readyz", "the `URL` to ask")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Second, "how long to wait")
	return cmd
}

func healthcheck(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("check health: %w", err)
	}
	client := http.Client{}
	if host := request.URL.Hostname(); config.IsLoopback(host) {
		// A certificate names the machine, not loopback. Nothing secret is sent.
		client.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("check health: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= 200 && response.StatusCode < 300 {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // for the message only
	return fmt.Errorf("check health: %s: %s", response.Status, strings.TrimSpace(string(body)))
}
