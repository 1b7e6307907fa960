package streaming

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// PreflightReport has the findings of a preflight. Its problems have no file and no line.
type PreflightReport struct {
	Errors   []config.Problem `json:"-"`
	Warnings []config.Problem `json:"-"`

	// Key says whether the API takes the management key: "accepted", "refused", or "unknown".
	Key string `json:"key"`
	// Requests were sent in Seconds, and Throttled of them got a 429.
	Requests  int     `json:"requests"`
	Throttled int     `json:"throttled"`
	Seconds   float64 `json:"seconds"`
	// A running relay sends NeededPerSecond requests, of AllowedPerSecond.
	NeededPerSecond  float64                `json:"requests_per_second_needed"`
	AllowedPerSecond float64                `json:"requests_per_second_allowed"`
	Environments     []PreflightEnvironment `json:"environments"`
}

// The words of [PreflightReport.Key].
const (
	KeyAccepted = "accepted"
	KeyRefused  = "refused"
	KeyUnknown  = "unknown"
)

// preflightAtOnce bounds the environments looked at together; the client bounds the requests.
const preflightAtOnce = 8

// preflightRun is one preflight.
type preflightRun struct {
	cfg     *config.Config
	client  *management.Client
	counter *counter

	unused sync.Once // the API cannot be used, and the answer says so

	mu       sync.Mutex // guards the fields below
	report   PreflightReport
	projects map[string]bool // the existing ones
	absent   map[string]bool // the missing ones
}

// Preflight asks the API about the key, each project and each environment of cfg. It needs a
// workspace section. It ends with ctx, and counts the environments left over.
func Preflight(ctx context.Context, cfg *config.Config) PreflightReport {
	return preflight(ctx, cfg, http.DefaultTransport)
}

func preflight(ctx context.Context, cfg *config.Config, transport http.RoundTripper) PreflightReport {
	began := time.Now()
	r := &preflightRun{cfg: cfg, counter: &counter{next: transport}, projects: map[string]bool{}, absent: map[string]bool{}}
	r.report = PreflightReport{Key: KeyUnknown, NeededPerSecond: cfg.Round().PerSecond, AllowedPerSecond: cfg.Workspace.RequestsPerSecond}
	w := cfg.Workspace
	var err error
	r.client, err = management.New(management.Options{
		BaseURL: w.BaseURL, KeyID: w.KeyID, Secret: w.Secret, Projects: cfg.Projects(), RequestsPerSecond: w.RequestsPerSecond,
		Timeout: w.Timeout, MaxAttempts: 3, Patient: true, AtOnce: preflightAtOnce, HTTPClient: &http.Client{Transport: r.counter},
	})
	if err != nil {
		r.fail("workspace", err.Error())
		return r.report
	}
	r.report.Environments = make([]PreflightEnvironment, len(cfg.Environments))
	for i, e := range cfg.Environments {
		r.report.Environments[i] = PreflightEnvironment{Project: e.Project, Environment: e.Environment, Exists: ExistsUnknown}
	}
	if r.readProjects(ctx) {
		r.readEnvironments(ctx)
	}
	r.judgeRate(time.Since(began))
	r.unchecked(ctx)
	return r.report
}

// readProjects reads each project once, and reports whether the API can be used. The first
// read shows whether the key is accepted.
func (r *preflightRun) readProjects(ctx context.Context) bool {
	all := r.cfg.Projects()
	if len(all) == 0 || !r.readProject(ctx, all[0]) {
		return false
	}
	each(ctx, all[1:], func(_ int, project string) { r.readProject(ctx, project) })
	return true
}

// readProject reports whether the API can be used.
func (r *preflightRun) readProject(ctx context.Context, project string) bool {
	_, err := r.client.Project(ctx, project)
	place := slices.IndexFunc(r.cfg.Environments, func(e config.Environment) bool { return e.Project == project })
	field := fmt.Sprintf("environments[%d].project", place)
	reach, _ := r.client.Reach()
	switch {
	case err == nil:
		r.note(func() { r.report.Key, r.projects[project] = KeyAccepted, true })
	case ctx.Err() != nil: // see unchecked
	case reach.Cause != "":
		r.unusable(reach)
		return false
	case management.SaysAbsent(err):
		r.note(func() { r.report.Key, r.absent[project] = KeyAccepted, true })
		r.fail(field, fmt.Sprintf("the workspace has no project %q (%s); correct the slug, or use a management key of its workspace", project, why(err)))
	case management.IsNotFound(err):
		r.fail("workspace.base_url", "something other than the API answers there ("+why(err)+
			"); give the API's address before /pwa/v3, and check any proxy")
		return false
	case management.IsDenied(err):
		r.fail(field, fmt.Sprintf("project %s cannot be read: %v; give the management key the right to read it, or remove its environments here", project, err))
	default:
		r.fail(field, fmt.Sprintf("project %s cannot be read: %v", project, err))
	}
	return true
}

// unusable says why no call can succeed, once.
func (r *preflightRun) unusable(reach management.Reach) {
	r.unused.Do(func() {
		if reach.Cause == management.CauseThrottled {
			r.note(func() { r.report.Key = KeyAccepted })
			r.fail("workspace.requests_per_second", fmt.Sprintf("the API asks to wait until %s (%s); try again then, lower this value, or stop others that use the API of this workspace",
				reach.NextTry.UTC().Format(time.RFC3339), reach.Error))
			return
		}
		if reach.Cause == management.CauseUnauthorized {
			r.note(func() { r.report.Key = KeyRefused })
			r.fail("workspace.key_id", "the API refuses this management key ("+reach.Error+
				"); check it and workspace.secret, or create a new key in the dashboard's workspace settings, under management API")
			return
		}
		r.fail("workspace.base_url", "the API cannot be used ("+reach.Error+"); check the address, the network, and any proxy")
	})
}

// unchecked counts the environments left over at ctx's end.
func (r *preflightRun) unchecked(ctx context.Context) {
	left := 0
	for _, e := range r.report.Environments {
		if e.Exists == ExistsUnknown && e.Error == "" {
			left++
		}
	}
	if ctx.Err() == nil || left == 0 {
		return
	}
	r.fail("environments", fmt.Sprintf("%d of %d environments are not checked: the time is over; give more with --api-timeout",
		left, len(r.report.Environments)))
}

// judgeRate warns where the API allows fewer requests than the relay needs or may send. A
// 429 is no proof of a bound of its own: others of the workspace count as well.
func (r *preflightRun) judgeRate(took time.Duration) {
	p := &r.report
	p.Requests, p.Throttled, p.Seconds = int(r.counter.sent.Load()), int(r.counter.throttled.Load()), took.Seconds()
	if p.Throttled == 0 {
		return
	}
	r.warn("workspace.requests_per_second", fmt.Sprintf(
		"the API answered 429 to %d of %d requests, sent at no more than %v per second; the relay needs %.1f per second: "+
			"lower this value, or stop others that use the API of this workspace", p.Throttled, p.Requests, p.AllowedPerSecond, p.NeededPerSecond))
}

func (r *preflightRun) fail(field, reason string) {
	r.note(func() {
		r.report.Errors = append(r.report.Errors, config.Problem{Field: field, Reason: reason})
	})
}

func (r *preflightRun) warn(field, reason string) {
	r.note(func() {
		r.report.Warnings = append(r.report.Warnings, config.Problem{Field: field, Reason: reason})
	})
}

func (r *preflightRun) note(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// why is the cause of a failed call, and its request where the API gave an id.
func why(err error) string {
	if request := management.RequestOf(err); request != "" {
		return management.CauseOf(err) + ", request " + request
	}
	return management.CauseOf(err)
}

// each calls do for every item, some at once, until ctx ends.
func each[T any](ctx context.Context, items []T, do func(i int, item T)) {
	var all sync.WaitGroup
	turns := make(chan struct{}, preflightAtOnce)
	for i, item := range items {
		select {
		case <-ctx.Done():
		case turns <- struct{}{}:
			all.Go(func() {
				defer func() { <-turns }()
				do(i, item)
			})
			continue
		}
		break
	}
	all.Wait()
}

// counter counts requests and 429s.
type counter struct {
	next            http.RoundTripper
	sent, throttled atomic.Int64
}

func (c *counter) RoundTrip(req *http.Request) (*http.Response, error) {
	c.sent.Add(1)
	resp, err := c.next.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusTooManyRequests {
		c.throttled.Add(1)
	}
	return resp, err
}
