package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/relay"
)

// With more than warnShare of the disk budget undelivered, readiness warns.
const warnShare = 0.8

// journalReady says whether a push would be kept.
func (r *process) journalReady(ctx context.Context) (string, error) {
	if err := r.storeErr(); err != nil {
		return "", err
	}
	u, refusing, err := r.journal.Ready(ctx)
	if err != nil {
		return "", err
	}
	if err := r.someoneIsTaken(ctx); err != nil {
		return "", fmt.Errorf("pushes of every environment are refused: %w", err)
	}
	spent, waiting := percent(u.Bytes, u.MaxBytes), percent(u.Undelivered, u.MaxBytes)
	remark := fmt.Sprintf("%.1f%% of the disk budget is spent, %.1f%% on events still undelivered to some sink", spent, waiting)
	if waiting >= 100*warnShare {
		remark = "warning: " + remark + "; when they take it all, pushes are refused"
	}
	if refusing != "" {
		return "warning: some shards refuse pushes: " + refusing, nil
	}
	return remark, nil
}

// environmentsRemark names the environments in trouble: nothing is cured by sending pushes
// elsewhere.
func (c *control) environmentsRemark(context.Context) (string, error) {
	var trouble []string
	unknown := 0
	all := c.health.Status()
	for i := range all {
		switch e := &all[i]; {
		case e.State == health.Flowing, e.State == health.Gapped, e.Silenced:
		case e.State == health.Unknown:
			unknown++
		default:
			trouble = append(trouble, fmt.Sprintf("%s/%s is %s: %s", e.Project, e.Environment, e.State, e.Reason))
		}
	}
	if len(trouble) > 0 {
		return fmt.Sprintf("warning: %d of %d are in trouble: %s", len(trouble), len(all), strings.Join(trouble, "; ")), nil
	}
	return fmt.Sprintf("%d, none in trouble, %d unknown", len(all), unknown), nil
}

// sinksRemark names the failing sinks. Pushes are taken all the while.
func (r *process) sinksRemark(context.Context) (string, error) {
	var failing []string
	for _, s := range r.cfg().Sinks {
		if d := r.deliveries.Delivery(s.Name); !d.FailingSince.IsZero() {
			failing = append(failing, fmt.Sprintf("%s has failed for %s: %s", s.Name, sinceText(d.FailingSince), d.LastError))
		}
	}
	if len(failing) > 0 {
		return fmt.Sprintf("warning: %d of %d fail, and are tried again: %s", len(failing), len(r.cfg().Sinks), strings.Join(failing, "; ")), nil
	}
	return fmt.Sprintf("%d, none fails", len(r.cfg().Sinks)), nil
}

// workspaceRemark says whether the API can be used. Events flow without it.
func workspaceRemark(now management.Reach) string {
	switch {
	case !now.Known:
		return "the management API has not been asked yet"
	case now.Cause == management.CauseUnauthorized:
		return fmt.Sprintf("warning: the management API has refused the key for %s: check workspace.key_id and workspace.secret: %s", sinceText(now.Since), now.Error)
	case now.Cause == management.CauseThrottled:
		return fmt.Sprintf("warning: the management API asked this relay to wait until %s, and nothing is sent before: %s", now.NextTry.UTC().Format(time.RFC3339), now.Error)
	case now.Cause != "":
		return fmt.Sprintf("warning: the management API has not answered for %s; it is asked again every few seconds: %s", sinceText(now.Since), now.Error)
	}
	return "the management API answers"
}

func sinceText(t time.Time) string { return time.Since(t).Round(time.Second).String() }

func percent(part, whole int64) float64 { return 100 * float64(part) / float64(whole) }

// someoneIsTaken returns nil if the journal has room for at least one of the
// environments.
func (r *process) someoneIsTaken(ctx context.Context) (err error) {
	for _, e := range r.cfg().Environments {
		giveBack, refused := r.journal.Reserve(ctx, relay.SourceOf(e.Project, e.Environment), 0, int64(e.Quota.UndeliveredBytes))
		if refused == nil {
			giveBack()
			return nil
		}
		err = refused
	}
	return err
}

// About is the section "relay" of /status.
type About struct {
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Now is the relay's clock: ages are by it.
	Now     time.Time `json:"now"`
	DataDir string    `json:"data_dir"`
	// Config is the configuration that the relay runs with.
	Config ConfigState `json:"config"`
}

// changesShown is how many changes /status shows.
const changesShown = 5

// startStatus adds the sections of /status about the relay as a whole.
func (r *process) startStatus(context.Context) error {
	began := time.Now()
	r.admin.AddStatus("relay", func(context.Context) (any, error) {
		return About{Version: r.version, Started: began, Now: time.Now(), DataDir: r.cfg().DataDir, Config: *r.reload.now.Load()}, nil
	})
	return nil
}

// changes are the newest changes of the workspace, the newest first.
func (c *control) changes(ctx context.Context) (any, error) {
	all := []timeline.Row{}
	for _, typ := range []string{"streaming.*changed", "settings.changed"} {
		if _, err := c.timeline.List(ctx, timeline.Filter{Type: typ, Limit: changesShown}, func(row timeline.Row) error {
			all = append(all, row)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b timeline.Row) int { return int(b.Index - a.Index) })
	return all[:min(changesShown, len(all))], nil
}
