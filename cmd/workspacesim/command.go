package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// settings are the flags.
type settings struct {
	listen, adminListen string
	secret              string
	changeEvery         time.Duration
	verbose             bool
	strictStreaming     bool
	sim                 workspacesim.Options
}

// serveError is an error without the caller's fault.
type serveError struct{ err error }

func (e *serveError) Error() string { return e.err.Error() }
func (e *serveError) Unwrap() error { return e.err }

// run is the program: it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cmd := newCommand(stdout, stderr)
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	var failed *serveError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &failed):
		_, _ = fmt.Fprintln(stderr, "workspacesim:", err)
		return 1
	}
	_, _ = fmt.Fprintf(stderr, "workspacesim: %v\nTry 'workspacesim --help'.\n", err)
	return 2
}

const long = `workspacesim serves the Workspace Management API on --listen, with seeded
projects, and streams each environment's event log to the destination that
operation 14 sets: to GRAFANA_LOKI over HTTPS (HTTP where the host is loopback),
to DATADOG where --datadog-site says that the site is.

On --admin-listen it takes what a dashboard or an outage would do, without
credentials: keep that address private. GET /_sim/environments lists what there
is, GET /_sim/counts what was generated and acknowledged; POST /_sim/changes
changes a setting, POST /_sim/faults lets requests fail. POST /_sim/streaming_create,
_edit, _delete and _status do what a person does to a streaming config in the
dashboard, and POST /_sim/stream_faults lets a stream go silent, or late.`

const examples = `  # three projects, ten events a second in each environment
  workspacesim

  # read a project
  curl -u workspace-key-demo-7d1f0c52:workspace-secret-demo-R2n8vQ5kXw \
    http://127.0.0.1:8099/pwa/v3/projects/acme-portal

  # a setting changes every five seconds; a key of one's own
  WORKSPACESIM_SECRET=long-and-secret workspacesim --key-id my-key --change-every 5s

  # Datadog's US site is at home
  workspacesim --datadog-site US=http://127.0.0.1:8126

  # as the real service: a person creates and enables each streaming config
  workspacesim --strict-streaming
  curl http://127.0.0.1:8098/_sim/streaming_create -d '{"project_slug":"acme-portal",
    "environment_slug":"production","destination_type":"GRAFANA_LOKI","destination_config":
    {"grafana_loki":{"hostname":"relay.example.com","username":"u","password":"first"}}}'
  curl http://127.0.0.1:8098/_sim/streaming_status \
    -d '{"project_slug":"acme-portal","environment_slug":"production","status":"ACTIVE"}'

  # a person changes the push secret; the last four characters stay the same
  curl http://127.0.0.1:8098/_sim/streaming_edit \
    -d '{"project_slug":"acme-portal","environment_slug":"production","same_last_four":true}'

  # a tenth of the requests fail, and each takes half a second
  curl http://127.0.0.1:8098/_sim/faults -d '{"error_rates":{"500":0.1},"latency":"500ms"}'`

func newCommand(stdout, stderr io.Writer) *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use: "workspacesim", Short: "Simulates the Workspace Management API and its event streaming",
		Long: long, Example: examples, Args: cobra.NoArgs, SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.start(cmd.Context(), stdout, stderr) },
	}
	f := cmd.Flags()
	f.StringVar(&s.listen, "listen", "127.0.0.1:8099", "address of the API; port 0 takes a free one")
	f.StringVar(&s.adminListen, "admin-listen", "127.0.0.1:8098", "address of /_sim; empty for none")
	f.Uint64Var(&s.sim.Seed, "seed", 1, "seed of all data and events")
	f.StringVar(&s.sim.Run, "run", "", "part of the event ids, to tell runs apart (default: the time of the start)")
	f.StringVar(&s.sim.KeyID, "key-id", workspacesim.DemoKeyID, "management key id")
	f.StringVar(&s.secret, "secret", "", "management secret (default: $WORKSPACESIM_SECRET, or a demo secret)")
	f.IntVar(&s.sim.Projects, "projects", 3, "projects at the start, 1 to 100")
	f.StringVar(&s.sim.RBACPrefix, "rbac-prefix", "service", "prefix of the four branded RBAC fields")
	f.Float64Var(&s.sim.RateLimit, "rate-limit", 0, "API requests a second, 0 for no limit")
	f.StringVar(&s.sim.NewConfigStatus, "new-config-status", workspacesim.StatusActive, "streaming_status after operation 14")
	f.BoolVar(&s.sim.PutKeepsStatus, "put-keeps-status", false, "operation 14 keeps the streaming_status of a config of the same type")
	f.BoolVar(&s.sim.PutNeedsConfig, "put-needs-config", false, "refuse operation 14 where no config exists (404)")
	f.BoolVar(&s.sim.PutNeedsSameType, "put-needs-same-type", false, "refuse operation 14 where a config of the other type exists (409)")
	f.BoolVar(&s.strictStreaming, "strict-streaming", false, "the three above, a new config is DISABLED, and settings have the forms that public clients' tests expect: as the real service was seen to do")
	cmd.MarkFlagsMutuallyExclusive("strict-streaming", "new-config-status")
	f.Float64Var(&s.sim.Rate, "rate", 10, "events a second in each environment")
	f.IntVar(&s.sim.EventBytes, "event-bytes", 600, "least size of an event, in bytes")
	f.StringToStringVar(&s.sim.DatadogSites, "datadog-site", nil, "SITE=URL, where a Datadog site is; may be repeated")
	f.StringSliceVar(&s.sim.LocalHosts, "local-host", nil, "host name to push to over HTTP, like loopback; may be repeated")
	f.DurationVar(&s.changeEvery, "change-every", 0, "change a setting this often, 0 for never")
	f.BoolVarP(&s.verbose, "verbose", "v", false, "log every request")
	return cmd
}

// options completes the simulator's options. A missing secret is the demo's only
// together with the demo's key id.
func (s *settings) options(getenv func(string) string) (workspacesim.Options, error) {
	o := s.sim
	if s.strictStreaming {
		o.StrictStreaming()
	}
	if s.secret == "" {
		s.secret = getenv("WORKSPACESIM_SECRET")
	}
	if s.secret == "" && o.KeyID == workspacesim.DemoKeyID {
		s.secret = workspacesim.DemoSecret
	}
	if s.secret == "" {
		return o, errors.New("--key-id needs --secret or $WORKSPACESIM_SECRET")
	}
	o.Secret = secret.New(s.secret)
	if o.Run == "" {
		o.Run = strconv.FormatInt(time.Now().Unix(), 36)
	}
	if s.changeEvery < 0 {
		return o, errors.New("--change-every must not be negative")
	}
	return o, nil
}
