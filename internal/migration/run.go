package migration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// Run sends the rows of a file that have no answer yet. One process at a time may.
type Run struct {
	File    *File
	API     *management.Client
	Project string // its id; the caller has asked [File.IsOf]
	// Report is told how many rows have an outcome, how long the others take, and why the API is waited
	// for, if it is.
	Report func(done int, left time.Duration, failing string)

	ends    []time.Time // of the last requests, as many as the limit, oldest first
	started time.Time
	done    int // rows
}

const (
	// attempts bounds those of one row without a usable answer, which take half a minute in all.
	attempts = 8
	// The pauses after a failure double from firstPause to longestPause.
	firstPause   = 100 * time.Millisecond
	longestPause = 30 * time.Second
	// within is the time that the limit is of, and a moment more, since clocks round.
	within = time.Second + 2*time.Millisecond
)

// ErrEarly ends a run before its last row.
var ErrEarly = errors.New("the run ended early; another run goes on where it was")

// Do sends the rows. Its result is of all rows of the file, of a run that ended early too.
func (r *Run) Do(ctx context.Context) (result *Result, err error) {
	r.started = time.Now()
	// It begins with a second of rest: a process before this one may have been killed just now.
	r.ends = slices.Repeat([]time.Time{r.started}, r.File.Plan.Flavour.Limit)
	err = r.File.walk(func(row *Row, v answer) error {
		if !r.File.isLeft(row, v) || r.File.blocked(row) != "" {
			return nil
		}
		return r.issue(ctx, row, v)
	})
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = ErrEarly
	}
	err = errors.Join(err, r.File.flush())
	// A crash leaves the file of the run before, and the next run writes it again.
	counted := durable.Replace(r.File.Refused(), func(w io.Writer) (err error) {
		result, err = r.File.Count(w)
		return err
	})
	return result, errors.Join(err, counted)
}

// issue sends a row until it has an answer. It keeps the requests of any second within the limit,
// as the API counts them: a request arrives there between its start and its end, so each starts a
// second after the end of the one that is as many places before it as the limit permits.
func (r *Run) issue(ctx context.Context, row *Row, before answer) error {
	wasLost := before.Outcome == sent || before.Outcome == Unsure
	if wasLost && row.Type == TypeSession {
		return r.settle(row, answer{Outcome: Unsure, Lost: true, Reason: "the run was killed before the answer was kept, and another call would make another session"})
	}
	for attempt, pause := 1, firstPause; ; pause = min(2*pause, longestPause) {
		if err := retry.Sleep(ctx, time.Until(r.ends[0].Add(within))); err != nil {
			return err
		}
		// One sync serves this and what the row before was answered. A crash before it returns loses
		// that one answer, and its row stays sent.
		r.File.note(row, answer{Outcome: sent})
		if err := r.File.flush(); err != nil {
			return err
		}
		got := r.send(ctx, row)
		if got.Outcome == Unsure {
			attempt, wasLost = attempt+1, true
		}
		got.Lost = wasLost
		if got.settles(row, attempt > attempts) {
			return r.settle(row, got.answer)
		}
		if err := r.again(ctx, row, got, pause); err != nil {
			return err
		}
	}
}

// reply is what became of a call. Its outcome is Done, Refused, NotSent where nothing was done, or
// Unsure where no answer came, or a 5xx.
type reply struct {
	answer
	wait time.Duration // as Retry-After asks; 0 without it
	stop bool          // no other row would fare better
}

const notTheAPI = "something other than the API answered: check --api-url, and any proxy before it"

// kindForm is the form of an error_type, as it may stand in the trail.
var kindForm = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)

// send makes the call of a row. The end of ctx does not cut it off: its answer would be lost.
func (r *Run) send(ctx context.Context, row *Row) (got reply) {
	path, body := row.request(r.File.organization(row))
	a, err := r.API.Migrate(context.WithoutCancel(ctx), path, body, row.Hash, row.SessionToken)
	r.ends = append(r.ends[1:], time.Now())
	got.Outcome, got.Status, got.RequestID = Unsure, a.StatusCode, a.RequestID
	var e *management.APIError
	switch {
	case err == nil && a.RequestID == "":
		got.Reason = notTheAPI
	case err == nil && row.Type == TypeOrganization:
		got.Outcome, got.Slug, got.OrganizationID = Done, row.OrganizationSlug, organizationIn(a.Raw)
	case err == nil:
		got.Outcome = Done
	case errors.Is(err, management.ErrNotSent):
		got.Outcome, got.Reason = NotSent, err.Error()
	case errors.As(err, &e):
		got.failed(e)
	default:
		got.Reason = err.Error()
	}
	return got
}

// organizationIn finds the id of a created organization. The document does not list the fields of
// the answer, so that it is looked for in both places where other answers have one.
func organizationIn(raw json.RawMessage) string {
	var v struct {
		OrganizationID string `json:"organization_id"`
		Organization   struct {
			OrganizationID string `json:"organization_id"`
		} `json:"organization"`
	}
	_ = json.Unmarshal(raw, &v) // one of another form has none
	return idForm.FindString(cmp.Or(v.Organization.OrganizationID, v.OrganizationID))
}

// failed reads an error of the API.
func (g *reply) failed(e *management.APIError) {
	g.Outcome, g.Status, g.RequestID, g.wait = Refused, e.Status, e.RequestID, e.RetryAfter
	g.Kind = cmp.Or(kindForm.FindString(e.Type), fmt.Sprintf("http_%d", e.Status))
	g.Reason = fmt.Sprintf("HTTP %d %s: %s", e.Status, e.Type, e.Message)
	switch {
	case e.Status == http.StatusTooManyRequests:
		g.Outcome = NotSent
	case e.Status >= http.StatusInternalServerError:
		g.Outcome = Unsure
	case management.IsDenied(e):
		g.Outcome, g.stop, g.Reason = NotSent, true, g.Reason+"; check --project-id and the project's secret"
	case e.RequestID == "":
		g.Outcome, g.stop, g.Reason = NotSent, true, fmt.Sprintf("HTTP %d: %s", e.Status, notTheAPI)
	}
}

// settles reports whether a reply settles a row. After a lost answer, a refusal as a duplicate
// says that the first call had its effect, and any other refusal says nothing.
func (g *reply) settles(row *Row, last bool) bool {
	switch {
	case g.Outcome == NotSent:
		return false
	case g.Outcome == Unsure: // another call for a session would make another one
		return last || row.Type == TypeSession
	case g.Outcome == Done || !g.Lost:
		return true
	}
	// The document names no error of a duplicate, so the words that services use for it count.
	duplicate := g.Status == http.StatusConflict || strings.Contains(g.Kind, "duplicate") || strings.Contains(g.Kind, "already")
	g.Outcome, g.Reason = Unsure, "an answer was lost, and then: "+g.Reason
	switch {
	case duplicate && row.Type == TypeOrganization:
		g.Reason += "; its id was in the lost answer: look it up in the dashboard, and put it into the row as organization_id"
	case duplicate:
		g.Outcome = Found
	}
	return true
}

// again waits before another attempt.
func (r *Run) again(ctx context.Context, row *Row, got reply, pause time.Duration) error {
	if !got.Lost { // else the journal's last word, that it is sent, says that its answer is lost
		r.File.note(row, got.answer)
	}
	if err := r.File.flush(); err != nil {
		return err
	}
	if got.stop {
		return fmt.Errorf("line %d: %s: %w", row.line, got.Reason, ErrEarly)
	}
	r.report(got.Reason)
	return retry.Sleep(ctx, max(pause, got.wait))
}

// settle keeps the outcome of a row, durably with the next one.
func (r *Run) settle(row *Row, v answer) error {
	r.File.note(row, v)
	r.done++
	r.report("")
	return r.File.bind(r.Project)
}

func (r *Run) report(failing string) {
	each := max(time.Second/time.Duration(len(r.ends)), time.Since(r.started)/time.Duration(r.done+1))
	r.Report(r.done, time.Duration(r.File.Plan.Total-r.done)*each, failing)
}

// Subject is that of the entries about a run, migration.started and migration.ended.
const Subject = "migration"

// Note is the Detail of both entries. It has numbers and the API's error types, and nothing of a
// row.
type Note struct {
	Summary  string `json:"summary"`
	Severity string `json:"severity"`
	Reason   string `json:"reason,omitempty"` // of the person
	Plan     *Plan  `json:"plan,omitempty"`
	// Until is when the last events come: for a run that begins, by twice its own estimate.
	Until  time.Time `json:"events_until"`
	Result *Result   `json:"result,omitempty"` // of the end
}

// grace is for how long events of a run come after its end.
const grace = 10 * time.Minute

// Starts is the note of a run that begins.
func (r *Run) Starts(reason string) Note {
	p := &r.File.Plan
	takes := time.Duration(p.Seconds * float64(time.Second))
	return Note{
		Severity: "high", Reason: reason, Plan: p, Until: time.Now().Add(2*takes + grace).UTC(),
		Summary: fmt.Sprintf("a migration begins: %d requests for %d organizations, %d members, %d passwords and %d sessions",
			p.Total, p.Rows[TypeOrganization], p.Rows[TypeMember], p.Rows[TypePassword], p.Rows[TypeSession]),
	}
}

// Ends is the note of its end.
func (n Note) Ends(result *Result) Note {
	n.Result, n.Plan, n.Until = result, nil, time.Now().Add(grace).UTC()
	n.Summary = fmt.Sprintf("a migration has ended: %d rows are done, and %d are not", result.Outcomes[Done]+result.Outcomes[Found], result.Open)
	return n
}

// Explains says, after a semicolon, that an environment's newest entry of a run explains its events.
// It is empty where no run is under way. A run that was killed has no end, and the expected one
// counts.
func Explains(e *audit.Entry, now time.Time) string {
	var d struct {
		Until  time.Time    `json:"events_until"`
		Person audit.Person `json:"person"`
	}
	_ = json.Unmarshal(e.Detail, &d) // one of another form explains nothing
	if now.After(d.Until) || now.Before(e.Time) {
		return ""
	}
	return fmt.Sprintf("; a migration by %s, at %s, explains far more events than usual", d.Person, e.Time.UTC().Format(time.DateTime+" MST"))
}
