package workspacesim

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
)

// The demo credentials, the default of [Options].
const (
	DemoKeyID  = "workspace-key-demo-7d1f0c52"
	DemoSecret = "workspace-secret-demo-R2n8vQ5kXw"
)

// maxProjects bounds the projects made by POST /v1/projects.
const maxProjects = 100

// Options are a simulator's settings. The zero value is usable.
type Options struct {
	// Seed determines all data and events.
	Seed uint64
	// Run is a part of the event ids, to tell this run from others: letters and digits.
	// Default: Seed in decimal.
	Run string
	// KeyID and Secret are the management key. Default: the demo pair.
	KeyID  string
	Secret secret.Text
	// Projects is the number of projects at first. Default 3.
	Projects int
	// RBACPrefix is the prefix of four RBAC field names. Default "service".
	RBACPrefix string
	// DocsURL begins the error_url of errors. Default https://docs.workspace.example.
	DocsURL string
	// RateLimit is the API's limit in requests a second, 0 for none.
	RateLimit float64
	// NewConfigStatus is the streaming_status after operation 14. Default ACTIVE.
	NewConfigStatus string
	// PutKeepsStatus: operation 14 leaves the status of a config of the same type as it
	// is, and gives NewConfigStatus to a new one only.
	PutKeepsStatus bool
	// PutNeedsConfig: operation 14 is refused (404) while the environment has no config.
	PutNeedsConfig bool
	// PutNeedsSameType: operation 14 is refused (409) while the environment has a config
	// of the other type.
	PutNeedsSameType bool
	// StrictSettings: the settings have the forms that the tests of public clients expect: under
	// ZXCVBN the luds members are null, a prebuilt template has no custom_html_customization,
	// attribute_mapping is an object. To unset a missing default succeeds, that of PREBUILT is
	// refused (400).
	StrictSettings bool

	// Rate is the rate of each environment at first, in events a second.
	Rate float64
	// EventBytes is the least size of an event's JSON. Default 600; the content takes 480
	// to 660.
	EventBytes int
	// PushEvents is the most events in one push. Default 500.
	PushEvents int
	// PushEvery is the time between two batches of new events. Default 50ms.
	PushEvery time.Duration
	// PushesInFlight bounds an environment's concurrent pushes. Default 8.
	PushesInFlight int
	// QueueEvents bounds an environment's events in the queue and in flight. Events
	// beyond it are dropped and counted. Default 500000.
	QueueEvents int
	// GzipShare is the share of compressed pushes, and RepushShare of acknowledged pushes
	// sent once more, 0 to 1. Defaults 0.1 and 0; a negative GzipShare is none.
	GzipShare, RepushShare float64
	// PushTimeout bounds one attempt of a push. Default 10s.
	PushTimeout time.Duration
	// RetryMin and RetryMax bound the backoff between attempts. Defaults
	// 100ms and 5s.
	RetryMin, RetryMax time.Duration
	// DatadogSites maps a site to its intake's address, such as http://127.0.0.1:8126. A
	// missing site cannot be reached.
	DatadogSites map[string]string
	// LocalHosts are pushed to over plain HTTP, like loopback addresses. An entry may
	// include a port.
	LocalHosts []string
	// TLS is for pushes over HTTPS. Default: the system's roots.
	TLS *tls.Config
	// Dial connects the pushes. Default: over the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Logger takes the simulator's log. Default: none.
	Logger *slog.Logger
	// Now is the clock of generated data. Default time.Now.
	Now func() time.Time
}

// StrictStreaming sets the modes seen in public clients of the real service: a new
// config is DISABLED, operation 14 only changes one of its own type, and leaves its status
// as it is. A person creates and enables it in the dashboard (see [Simulator.Admin]).
// The settings are strict, too.
func (o *Options) StrictStreaming() {
	o.NewConfigStatus = StatusDisabled
	o.PutKeepsStatus, o.PutNeedsConfig, o.PutNeedsSameType = true, true, true
	o.StrictSettings = true
}

// complete fills in the defaults and validates.
func (o *Options) complete() error {
	if o.KeyID == "" && o.Secret.Empty() {
		o.KeyID, o.Secret = DemoKeyID, secret.New(DemoSecret)
	}
	setDefault(&o.Run, strconv.FormatUint(o.Seed, 10))
	setDefault(&o.Projects, 3)
	setDefault(&o.RBACPrefix, "service")
	setDefault(&o.DocsURL, "https://docs.workspace.example")
	setDefault(&o.NewConfigStatus, StatusActive)
	setDefault(&o.EventBytes, 600)
	setDefault(&o.PushEvents, 500)
	setDefault(&o.PushEvery, 50*time.Millisecond)
	setDefault(&o.PushesInFlight, 8)
	setDefault(&o.QueueEvents, 500_000)
	setDefault(&o.GzipShare, 0.1)
	setDefault(&o.PushTimeout, 10*time.Second)
	setDefault(&o.RetryMin, 100*time.Millisecond)
	setDefault(&o.RetryMax, max(5*time.Second, o.RetryMin))
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return errors.Join(o.check()...)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (o *Options) check() (errs []error) {
	fail := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	fail(o.KeyID == "" || o.Secret.Empty(), "key id and secret are given together or not at all")
	fail(strings.Contains(o.KeyID, ":"), "key id must not hold a colon (HTTP Basic)")
	fail(o.Projects < 0 || o.Projects > maxProjects, "projects: %d is not in 0 to %d", o.Projects, maxProjects)
	fail(strings.Trim(strings.ToLower(o.Run), "abcdefghijklmnopqrstuvwxyz0123456789") != "", "run %q holds more than letters and digits", o.Run)
	fail(!isRate(o.Rate), "rate: %v is not in 0 to %d", o.Rate, maxRate)
	fail(!(o.RateLimit >= 0), "rate limit: %v is negative", o.RateLimit)
	fail(o.EventBytes < 0 || o.EventBytes > maxEventBytes, "event bytes: %d is not in 0 to %d", o.EventBytes, maxEventBytes)
	fail(o.PushEvents < 0 || o.PushesInFlight < 0 || o.QueueEvents < 0, "counts must not be negative")
	fail(o.PushEvery < 0 || o.PushTimeout < 0 || o.RetryMin < 0 || o.RetryMax < o.RetryMin, "durations must not be negative, nor retry max below retry min")
	fail(o.GzipShare > 1 || !isShare(o.RepushShare), "shares must be in 0 to 1")
	return errs
}
