package rig

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// Workspace is a simulated workspace. Its environments push their event log to a relay
// over HTTP, with the relay's credentials.
type Workspace struct {
	*workspacesim.Simulator
	// URL is the base address of its Workspace Management API.
	URL string

	server *http.Server
}

// StartWorkspace starts a workspace with the demo key. It generates nothing before it has
// a rate, and streams nothing before a relay sets its streaming config.
func StartWorkspace(ctx context.Context, o workspacesim.Options) (*Workspace, error) {
	sim, err := workspacesim.New(o)
	if err != nil {
		return nil, fmt.Errorf("simulate a workspace: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("simulate a workspace: %w", err)
	}
	w := &Workspace{
		Simulator: sim, URL: "http://" + listener.Addr().String(),
		server: &http.Server{Handler: sim.Handler(), ReadHeaderTimeout: 10 * time.Second},
	}
	go func() { _ = w.server.Serve(listener) }() // ends at Close
	sim.Start(context.WithoutCancel(ctx))
	return w, nil
}

// SetTotalRate spreads perSecond events a second over the environments.
func (w *Workspace) SetTotalRate(perSecond float64) error {
	return w.SetRate("", "", perSecond/float64(len(w.Environments())))
}

// secretName is the environment variable with the key's secret, for Config.
const secretName = "SIM_SECRET"

// Env is the variable Config needs in the relay's environment.
func (w *Workspace) Env() string { return secretName + "=" + workspacesim.DemoSecret }

// Config is a relay's configuration in YAML, without data_dir, journal and sinks: with it
// the environments stream to the relay at ingest.
func (w *Workspace) Config(ingest, admin string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `workspace: {base_url: %q, key_id: %s, secret: "${%s}", requests_per_second: 1000}
ingest: {listen: %q}
admin: {listen: %q}
settings: {interval: 5s}
streaming: {interval: 1s}
environments:
`, w.URL, workspacesim.DemoKeyID, secretName, ingest, admin)
	for _, e := range w.Environments() {
		fmt.Fprintf(&b, "  - {project: %s, environment: %s, stream: {relay: {hostname: %q}}}\n", e.Project, e.Environment, ingest)
	}
	return b.String()
}

// Close ends the pushes and the API.
func (w *Workspace) Close() {
	w.Stop()
	_ = w.server.Close()
}
