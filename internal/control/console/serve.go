package console

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// Progress is the progress of a piece of work.
type Progress struct {
	Done  uint64 `json:"done"`
	Total uint64 `json:"total"`
	Unit  string `json:"unit"` // of both: "records" or "dead letters"

	Matched   uint64 `json:"matched"`           // chosen events, as far as the job has looked
	Delivered uint64 `json:"delivered"`         // acknowledged by the sink
	Refused   uint64 `json:"refused"`           // refused by it for good; they are in the dead letters
	Removed   uint64 `json:"removed,omitempty"` // removed dead letters
	Damaged   uint64 `json:"damaged,omitempty"` // of Unit: could not be read
	Missing   uint64 `json:"missing,omitempty"` // of Unit: were gone before they could be read

	// Sinks counts the chosen letters by sink.
	Sinks map[string]uint64 `json:"sinks,omitempty"`
	// Last is the newest chosen dead letter.
	Last uint64 `json:"last,omitempty"`
	// Failing is the error under retry; empty while it works.
	Failing string `json:"failing,omitempty"`
	// Archived are the entries moved to an archive, or to be moved.
	Archived []proof.Archived `json:"archived,omitempty"`
	// Notes are for a person.
	Notes []string `json:"notes,omitempty"`
}

// frame is one line of a stream, apart from the item in it.
type frame struct {
	Progress *Progress  `json:"progress,omitempty"`
	Taps     *TapCounts `json:"tap_counts,omitempty"`
	// Following: all rows before this index have come.
	Following *int64 `json:"following,omitempty"`

	Finished bool   `json:"finished,omitempty"` // the last line, all is well
	Error    string `json:"error,omitempty"`    // the last line, it is not
}

// item is a line with something that was asked for.
type item[T any] struct {
	Item *T `json:"item,omitempty"`
	frame
}

// none is the request of a question that needs no further words.
type none struct{}

// request reads the request of a call strictly: an older relay must not pass over a field that
// it does not know. A request with a method Check is checked by it.
func request[Req any](w http.ResponseWriter, r *http.Request) (req Req, wrong *refusal) {
	const limit = 1 << 20
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit))
	d.DisallowUnknownFields()
	if err := d.Decode(&req); err != nil {
		return req, refuse(http.StatusBadRequest, "read the request: %v", err)
	}
	if c, ok := any(&req).(interface{ Check() error }); ok {
		if err := c.Check(); err != nil {
			return req, refuse(http.StatusBadRequest, "%v", err)
		}
	}
	return req, nil
}

// answers serves a question whose answer is a stream of one value.
func answers[Req, Answer any](answer func(context.Context, Req) (Answer, error)) http.HandlerFunc {
	return lists(func(ctx context.Context, req Req, out *stream) error {
		v, err := answer(ctx, req)
		if err == nil {
			err = out.put(v)
		}
		return err
	})
}

// lists serves a question whose answer is a stream. An error before the first line is an answer
// of its own.
func lists[Req any](list func(ctx context.Context, req Req, out *stream) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		req, refused := request[Req](w, r)
		if refused != nil {
			fail(w, refused)
			return
		}
		out := newStream(w)
		err := list(r.Context(), req, out)
		if !out.began && errors.As(explained(err), &refused) {
			fail(w, refused)
			return
		}
		out.end(r.Context(), err)
	}
}

// works serves a command that takes long, and reports its progress. Its context ends when the
// client goes away, or the console is closed. A refusal before the job has begun is an answer of
// its own.
func works[Req any](do func(ctx context.Context, req Req, j *job) error) http.HandlerFunc {
	return lists(func(ctx context.Context, req Req, out *stream) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		j := &job{}
		ended := make(chan error, 1)
		go func() { ended <- do(ctx, req, j) }()
		tick := time.NewTicker(progressInterval)
		defer tick.Stop()
		for {
			select {
			case err := <-ended:
				out.last = j.snapshot()
				out.began = out.began || out.last.Unit != ""
				return err
			case <-tick.C:
				if p := j.snapshot(); p.Unit != "" && out.tell(frame{Progress: p}) != nil {
					cancel()
				}
			}
		}
	})
}

// explanations give the statuses of the other rooms' errors, and what a person can do. %v stands
// for the error.
var explanations = []struct {
	err    error
	status int
	text   string
}{
	{journal.ErrNoDamage, http.StatusConflict, "%v"},
	{eventproof.ErrNotFound, http.StatusNotFound, "%v"},
	{timeline.ErrSetting, http.StatusNotFound, "%v"},
	{timeline.ErrSeveral, http.StatusNotFound, "%v"},
	{health.ErrNoSilence, http.StatusNotFound, "%v; 'auditrelay silence list' shows the active ones"},
	{health.ErrImpossibleSilence, http.StatusBadRequest, "%v"},
	{workspace.ErrUsage, http.StatusBadRequest, "%v"},
	{workspace.ErrChanged, http.StatusConflict, "%v"},
	{workspace.ErrUnderWay, http.StatusConflict, "%v"},
	{streaming.ErrDryRun, http.StatusConflict, "streaming.dry_run is set, so nothing is changed in the workspace; remove it, and run 'auditrelay reload'"},
	{streaming.ErrElsewhere, http.StatusConflict, "%v; 'auditrelay streaming apply' points it at the relay"},
	{streaming.ErrNotGenerated, http.StatusNotFound, "%v: it has no stream.relay in the configuration, so the relay has set no credential there"},
	{streaming.ErrNotDesired, http.StatusNotFound, "%v; add its stream there, and run 'auditrelay reload'"},
}

// explained makes an error that a person can do something about a refusal.
func explained(err error) error {
	for _, e := range explanations {
		if errors.Is(err, e.err) {
			return &refusal{e.status, strings.ReplaceAll(e.text, "%v", err.Error())}
		}
	}
	return err
}

func fail(w http.ResponseWriter, r *refusal) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.status)
	_ = json.NewEncoder(w).Encode(answerError{r.text}) // the client has gone
}

// progressInterval is the time between two reports of progress to a client.
const progressInterval = 200 * time.Millisecond

// stream writes an answer line by line.
type stream struct {
	enc   *json.Encoder
	flush func() error
	began bool
	last  *Progress // for the last line
}

func newStream(w http.ResponseWriter) *stream {
	w.Header().Set("Content-Type", "application/x-ndjson")
	return &stream{enc: json.NewEncoder(w), flush: http.NewResponseController(w).Flush}
}

// send writes an item, and tell anything else; put writes an item that may wait for those after
// it. The first line waits for nothing.
func (s *stream) send(v any) error   { return s.line(item[any]{Item: &v}, true) }
func (s *stream) put(v any) error    { return s.line(item[any]{Item: &v}, false) }
func (s *stream) tell(f frame) error { return s.line(f, true) }

func (s *stream) line(v any, now bool) error {
	if err := s.enc.Encode(v); err != nil || s.began && !now {
		return err
	}
	s.began = true
	return s.flush()
}

// end writes the last line.
func (s *stream) end(ctx context.Context, err error) {
	f := frame{Progress: s.last, Finished: err == nil}
	switch {
	case err == nil:
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		f.Error = "the relay is shutting down; run the command again when it is back"
	default:
		f.Error = err.Error()
	}
	_ = s.tell(f) // the client has gone, or sees a stream without its end
}

// lastWords is the time for an answer's rest when the relay stops.
const lastWords = 500 * time.Millisecond

// cutOff ends unread answers when the relay stops: a paused `auditrelay tap | less` would
// hold the stop up.
func cutOff(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := http.NewResponseController(w)
		defer context.AfterFunc(r.Context(), func() { _ = answer.SetWriteDeadline(time.Now().Add(lastWords)) })()
		next.ServeHTTP(w, r)
	})
}

// job is a piece of long work.
type job struct {
	mu sync.Mutex
	p  Progress // guarded by mu
}

// begin says what the job counts.
func (j *job) begin(unit string) { j.update(func(p *Progress) { p.Unit = unit }) }

func (j *job) update(change func(p *Progress)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(&j.p)
}

func (j *job) snapshot() *Progress {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := j.p
	p.Notes, p.Sinks = slices.Clone(p.Notes), maps.Clone(p.Sinks)
	return &p
}

// logEnd logs how work for a command has ended.
func (s *Server) logEnd(what string, err error, fields ...any) {
	if err != nil {
		s.opts.Logger.Warn(what+" ended early", append(fields, "error", err)...)
		return
	}
	s.opts.Logger.Info(what+" has ended", fields...)
}
