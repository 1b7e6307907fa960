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
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// NewAPI makes a client of the second API, with a project's key.
func NewAPI(address, project string, key secret.Text) (*management.Client, error) {
	// The run keeps the rate. One at a time, the client's own limit is never reached.
	return management.New(management.Options{BaseURL: address, KeyID: project, Secret: key, RequestsPerSecond: 1000, AtOnce: 1})
}

// Run sends the rows of a file that have no answer yet. One process at a time may.
type Run struct {
	File *File
	API  *management.Client
	// Report is told how many rows have an outcome, how many of them are refused, how long the others
	// take, and why the API is waited for, if it is.
	Report func(done, refused int, left time.Duration, failing string)

	pace                *pace
	started             time.Time
	done, refused, lost int // rows; of the last ones an answer was lost
}

const (
	// attempts bounds those of one row without a usable answer, which take half a minute in all.
	attempts = 8
	// The pauses after a failure double from firstPause to longestPause.
	firstPause   = 100 * time.Millisecond
	longestPause = 30 * time.Second
)

// ErrEarly ends a run before its last row.
var ErrEarly = errors.New("the run ended early; another run goes on where it was")

// Do sends the rows. Its result is of all rows of the file, of a run that ended early too.
func (r *Run) Do(ctx context.Context) (result *Result, err error) {
	r.pace, r.started = newPace(r.File.Plan.Flavour.Limit), time.Now()
	err = r.File.walk(func(s state) error {
		if !r.File.isLeft(s) || s.blocked() != "" {
			return nil
		}
		return r.issue(ctx, s)
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
	if result != nil {
		result.Lost = r.lost
	}
	return result, errors.Join(err, counted)
}

// issue sends a row until it has an answer.
func (r *Run) issue(ctx context.Context, s state) error {
	wasLost := s.Outcome == sent || s.Outcome == Unsure
	if s.Outcome == sent {
		r.lost++
	}
	if wasLost && s.row.Type == TypeSession {
		r.settle(s.row, answer{Outcome: Unsure, Reason: "the run was killed before the answer was kept, and another call would make another session"})
		return nil
	}
	for attempt, pause := 1, firstPause; ; pause = min(2*pause, longestPause) {
		if err := r.pace.wait(ctx); err != nil {
			return err
		}
		if err := r.File.sending(s.row); err != nil {
			return err
		}
		got := r.send(ctx, s)
		if got.Outcome == Unsure {
			if !wasLost {
				r.lost++
			}
			attempt, wasLost = attempt+1, true
		}
		if got.settles(s.row, wasLost, attempt > attempts) {
			r.settle(s.row, got.answer)
			return nil
		}
		if err := r.again(ctx, s.row, got, wasLost, pause); err != nil {
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
func (r *Run) send(ctx context.Context, s state) (got reply) {
	path, body := s.row.request(s.organization)
	a, err := r.API.Migrate(context.WithoutCancel(ctx), path, body, s.row.Hash, s.row.SessionToken)
	r.pace.ended()
	got.Outcome, got.Status, got.RequestID, got.Kind = Unsure, a.StatusCode, a.RequestID, "no_answer"
	var e *management.APIError
	switch {
	case err == nil && a.RequestID == "":
		got.Reason = notTheAPI
	case err == nil:
		got.Outcome, got.Kind, got.OrganizationID = Done, "", organizationIn(a.Raw)
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
	g.Outcome, g.Status, g.RequestID, g.Kind, g.wait = Refused, e.Status, e.RequestID, e.Type, e.RetryAfter
	g.Reason = fmt.Sprintf("HTTP %d %s: %s", e.Status, e.Type, e.Message)
	if !kindForm.MatchString(e.Type) {
		g.Kind = fmt.Sprintf("http_%d", e.Status)
	}
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
func (g *reply) settles(row *Row, wasLost, last bool) bool {
	switch {
	case g.Outcome == NotSent:
		return false
	case g.Outcome == Unsure: // another call for a session would make another one
		return last || row.Type == TypeSession
	case g.Outcome == Done || !wasLost:
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
func (r *Run) again(ctx context.Context, row *Row, got reply, wasLost bool, pause time.Duration) error {
	if !wasLost { // else the journal's last word, that it is sent, says that its answer is lost
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
func (r *Run) settle(row *Row, v answer) {
	r.File.note(row, v)
	if r.done++; v.Outcome == Refused {
		r.refused++
	}
	r.report("")
}

func (r *Run) report(failing string) {
	each := max(r.pace.every, time.Since(r.started)/time.Duration(r.done+1))
	r.Report(r.done, r.refused, time.Duration(r.File.Plan.Total-r.done)*each, failing)
}

// pace keeps the requests of any second within a limit, as the API counts them. A request
// arrives there between its start and its end. So each starts a second after the end of the one
// that is as many places before it as the limit permits; besides, they are spread evenly.
type pace struct {
	every time.Duration
	last  time.Time
	ends  []time.Time // of the last requests, as many as the limit
	next  int         // the oldest of them
}

// newPace begins with a second of rest: a process before this one may have been killed just now.
func newPace(perSecond int) *pace {
	p := &pace{every: time.Second / time.Duration(perSecond), ends: make([]time.Time, perSecond)}
	for i := range p.ends {
		p.ends[i] = time.Now()
	}
	return p
}

// within is the time that the limit is of, and a moment more, since clocks round.
const within = time.Second + 2*time.Millisecond

func (p *pace) wait(ctx context.Context) error {
	at := p.ends[p.next].Add(within)
	if even := p.last.Add(p.every); even.After(at) {
		at = even
	}
	err := retry.Sleep(ctx, time.Until(at))
	p.last = time.Now()
	return err
}

func (p *pace) ended() {
	p.ends[p.next] = time.Now()
	p.next = (p.next + 1) % len(p.ends)
}

// The types and the subject of the entries about a run.
const (
	TypeStarted = "migration.started"
	TypeEnded   = "migration.ended"
	Subject     = "migration"
)

// Note is the Detail of both entries. It has numbers and the API's error types, and nothing of a
// row.
type Note struct {
	Migration string `json:"migration"`
	Summary   string `json:"summary"`
	Severity  string `json:"severity"`
	Reason    string `json:"reason,omitempty"` // of the person
	Plan      *Plan  `json:"plan,omitempty"`
	// Until is when the run will have ended, by twice its own estimate.
	Until time.Time `json:"expected_until,omitzero"`
	// Outcome and Result are of the end: "done", or "partial".
	Outcome string  `json:"outcome,omitempty"`
	Result  *Result `json:"result,omitempty"`
}

// grace is for how long events of a run come after its end.
const grace = 10 * time.Minute

// Starts is the note of a run that begins.
func (r *Run) Starts(reason string) Note {
	p := &r.File.Plan
	takes := time.Duration(p.Seconds * float64(time.Second))
	return Note{
		Migration: r.File.Migration, Severity: "high", Reason: reason, Plan: p, Until: time.Now().Add(2*takes + grace).UTC(),
		Summary: fmt.Sprintf("a migration begins: %d requests for %d organizations, %d members, %d passwords and %d sessions",
			p.Total, p.Rows[TypeOrganization], p.Rows[TypeMember], p.Rows[TypePassword], p.Rows[TypeSession]),
	}
}

// Ends is the note of its end.
func (n Note) Ends(result *Result) Note {
	n.Result, n.Plan, n.Until, n.Outcome, n.Severity = result, nil, time.Time{}, "done", "medium"
	if result.Open > 0 {
		n.Outcome, n.Severity = "partial", "high"
	}
	n.Summary = fmt.Sprintf("a migration has ended: %d rows are done, and %d are not", result.Outcomes[Done]+result.Outcomes[Found], result.Open)
	return n
}

// Flood are the events that a run causes in an environment's event log.
type Flood struct {
	Since, Until time.Time
	By           string
}

// FloodOf reads an environment's newest entry of a run. A run that was killed has no end, and the
// expected one counts.
func FloodOf(e audit.Entry) Flood {
	var d struct {
		Until  time.Time    `json:"expected_until"`
		Person audit.Person `json:"person"`
	}
	_ = json.Unmarshal(e.Detail, &d) // one of another form explains nothing
	if e.Type == TypeEnded {
		d.Until = e.Time.Add(grace)
	}
	return Flood{e.Time, d.Until, d.Person.String()}
}

// Text explains them, after a semicolon; it is empty where no run is under way.
func (f Flood) Text(now time.Time) string {
	if now.After(f.Until) || now.Before(f.Since) {
		return ""
	}
	return fmt.Sprintf("; a migration by %s, at %s, explains far more events than usual", f.By, f.Since.UTC().Format(time.DateTime+" MST"))
}
