package streaming

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

const (
	// pushesFor is how long pushes count as going on after one was refused: most event logs
	// have a push within this time.
	pushesFor = 15 * time.Minute
	// elsewhereLooks is how many intervals pass until a stream that does not end here is looked
	// at again. Nobody knows the old password, so the stream hardly comes back.
	elsewhereLooks = 10
)

// FormerStatus is an environment that was taken out of the configuration.
type FormerStatus struct {
	Project     string `json:"project"`
	Environment string `json:"environment"`
	// PointsHere is set if the API streams its event log here with a credential of this relay.
	PointsHere bool   `json:"points_here"`
	Hostname   string `json:"hostname,omitempty"` // where to, if it points here
	// LookedAt is the time of the last good look at the API; zero if there was none.
	LookedAt time.Time `json:"looked_at,omitzero"`
	Error    string    `json:"error,omitempty"` // of the last look
	// RefusedPushes counts its pushes since the start; LastPush is the time of the last one.
	RefusedPushes int64     `json:"refused_pushes"`
	LastPush      time.Time `json:"last_push,omitzero"`
	// Losing is set if its events still come here, and are lost.
	Losing bool `json:"losing"`
	// Reason and Action are for a person, if Losing is set.
	Reason string `json:"reason,omitempty"`
	Action string `json:"action,omitempty"`
}

// Formers watches the environments that were taken out of the configuration while their
// event logs may still be streamed here: by their refused pushes, and by the API. It sets
// nothing.
type Formers struct {
	options Options         // with the defaults; none of its environments is lost this way
	hosts   map[string]bool // this relay's names, in lower case; empty: none is known

	mu    sync.Mutex // guards looks
	looks map[credentials.Environment]formerLook
	said  map[string]bool // those named in the log; used by Run's goroutine only
}

// formerLook is the newest look at one environment.
type formerLook struct {
	hostname string // empty if it does not point here
	good     time.Time
	next     time.Time // the next look is not before this time
	err      error
}

// NewFormers makes a Formers; [Formers.Run] does the looking. It needs the credentials, the
// logger and the interval of the options; without a client it knows only of refused pushes.
func NewFormers(o Options) *Formers {
	o.Interval, o.Logger = cmp.Or(o.Interval, time.Minute), cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Client != nil {
		o.Client = o.Client.GivingWay()
	}
	return &Formers{options: o, hosts: hostsOf(o.Environments), looks: map[credentials.Environment]formerLook{}, said: map[string]bool{}}
}

// hostsOf are the host names by which environments stream to this relay.
func hostsOf(environments []config.Environment) map[string]bool {
	hosts := map[string]bool{}
	for _, e := range environments {
		if e.Stream != nil && e.Stream.Relay != nil {
			hosts[strings.ToLower(e.Stream.Relay.Hostname)] = true
		}
	}
	return hosts
}

// Run looks until ctx ends.
func (f *Formers) Run(ctx context.Context) {
	for {
		for _, one := range f.options.Credentials.Formers() {
			f.look(ctx, one)
		}
		if ctx.Err() != nil {
			return
		}
		f.tell(time.Now())
		if retry.Sleep(ctx, f.options.Interval) != nil {
			return
		}
	}
}

// look asks the API where the environment's event log goes.
func (f *Formers) look(ctx context.Context, one credentials.Former) {
	now := time.Now()
	f.mu.Lock()
	l := f.looks[one.Environment]
	f.mu.Unlock()
	if f.options.Client == nil || now.Before(l.next) {
		return
	}
	hostname, err := f.pointsTo(ctx, one)
	if ctx.Err() != nil {
		return
	}
	l.err = err
	if err == nil {
		l.hostname, l.good, l.next = hostname, now, time.Time{}
	}
	if l.hostname == "" {
		l.next = now.Add(elsewhereLooks * f.options.Interval)
	}
	if errors.Is(err, management.ErrUnreachable) {
		l.next = time.Time{} // the next one is asked once the API can be used
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks[one.Environment] = l
}

// pointsTo returns the host name of a stream that uses a credential of this relay; it is empty
// if the stream goes elsewhere, or nowhere. The user name contains a hash of the environment.
// The end of the password is compared too, because another relay may have made a credential for
// it since, and the host name, because a person may have changed nothing else.
func (f *Formers) pointsTo(ctx context.Context, one credentials.Former) (string, error) {
	a, err := f.options.Client.EventLogStreaming(ctx, one.Project, one.Environment.Environment, management.GrafanaLoki)
	if management.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	switch shape := a.Shape; {
	case shape == nil || isEmpty(shape):
		return "", fmt.Errorf("read event log streaming: %w: it has no destination", errImplausible)
	case shape.Username != one.Username(), !slices.Contains(one.LastFour, shape.LastFour),
		len(f.hosts) > 0 && !f.hosts[strings.ToLower(shape.Hostname)]:
		return "", nil
	default:
		return shape.Hostname, nil
	}
}

// tell logs each environment once when it begins to lose events, and once when it ends.
func (f *Formers) tell(now time.Time) {
	for _, s := range f.status(now) {
		name := s.Project + "/" + s.Environment
		switch {
		case s.Losing && !f.said[name]:
			f.options.Logger.Error("an environment that is not in the configuration still streams its event log here; its events are lost",
				"project", s.Project, "environment", s.Environment, "reason", s.Reason, "action", s.Action)
		case !s.Losing && f.said[name]:
			f.options.Logger.Info("an environment that is not in the configuration streams its event log here no more", "project", s.Project, "environment", s.Environment)
		}
		f.said[name] = s.Losing
	}
}

// Status describes each environment that was taken out of the configuration.
func (f *Formers) Status() []FormerStatus { return f.status(time.Now()) }

func (f *Formers) status(now time.Time) []FormerStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := []FormerStatus{}
	for _, one := range f.options.Credentials.Formers() {
		l := f.looks[one.Environment]
		s := FormerStatus{
			Project: one.Project, Environment: one.Environment.Environment, PointsHere: l.hostname != "", Hostname: l.hostname,
			LookedAt: l.good, RefusedPushes: one.Pushes, LastPush: one.LastPush,
		}
		if l.err != nil {
			s.Error = l.err.Error()
		}
		s.judge(now, l.hostname == "" && one.LastPush.Before(l.good))
		list = append(list, s)
	}
	return list
}

// judge finds out whether events are lost, and says what mends it. moved: the API showed another
// destination after the last push, so no further one is to be expected.
func (s *FormerStatus) judge(now time.Time, moved bool) {
	pushes := !s.LastPush.IsZero() && now.Sub(s.LastPush) < pushesFor && !moved
	var why string
	switch {
	case pushes && s.PointsHere:
		why = fmt.Sprintf("the API still streams it to %s, and %s", s.Hostname, s.pushed(now))
	case pushes:
		why = s.pushed(now)
	case s.PointsHere:
		why = fmt.Sprintf("the API still streams it to %s with this relay's credential", s.Hostname)
	default:
		return
	}
	s.Losing = true
	s.Reason = "it is not in the configuration, but " + why + ": its events are refused and lost"
	s.Action = fmt.Sprintf("put it back under environments, {project: %s, environment: %s}, and start the relay again; "+
		"or stream its event log elsewhere, in the workspace's dashboard", s.Project, s.Environment)
}

func (s *FormerStatus) pushed(now time.Time) string {
	pushes := "1 push was refused"
	if s.RefusedPushes != 1 {
		pushes = fmt.Sprintf("%d pushes were refused", s.RefusedPushes)
	}
	return fmt.Sprintf("%s, the last one %s ago", pushes, now.Sub(s.LastPush).Round(time.Second))
}

var formerDesc = prometheus.NewDesc("auditrelay_environment_not_configured",
	"1 where an environment that was taken out of the configuration still streams its event log here, which is refused and lost; else 0.",
	[]string{"project", "environment"}, nil)

// Describe implements [prometheus.Collector].
func (f *Formers) Describe(ch chan<- *prometheus.Desc) { ch <- formerDesc }

// Collect implements [prometheus.Collector].
func (f *Formers) Collect(ch chan<- prometheus.Metric) {
	for _, e := range f.options.Environments { // an alert on a series that does not exist could not be tested
		ch <- prometheus.MustNewConstMetric(formerDesc, prometheus.GaugeValue, 0, e.Project, e.Environment)
	}
	for _, s := range f.Status() {
		ch <- prometheus.MustNewConstMetric(formerDesc, prometheus.GaugeValue, flag[s.Losing], s.Project, s.Environment)
	}
}
