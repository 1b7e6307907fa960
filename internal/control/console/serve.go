package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/journal/quarantine"
	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// none is the request of a question that needs no further words.
type none struct{}

// request reads the request of a call strictly: an older relay must not pass over a field that
// it does not know. A request with a method Check is checked by it.
func request[Req any](w http.ResponseWriter, r *http.Request) (req Req, err error) {
	if _, bare := any(req).(none); bare {
		return req, nil
	}
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

// answers serves a question that has one answer.
func answers[Req, Answer any](answer func(context.Context, Req) (Answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		req, err := request[Req](w, r)
		if err != nil {
			fail(w, err)
			return
		}
		v, err := answer(r.Context(), req)
		if err != nil {
			fail(w, err)
			return
		}
		writeJSON(w, http.StatusOK, v)
	}
}

// lists serves a question whose answer is a stream. An error before the first line is an answer
// of its own.
func lists[Req any](list func(ctx context.Context, req Req, out *stream) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		req, err := request[Req](w, r)
		if err != nil {
			fail(w, err)
			return
		}
		out := newStream(w)
		if err = list(r.Context(), req, out); err != nil && !out.began {
			var refused *refusal
			if errors.As(explained(err), &refused) {
				fail(w, err)
				return
			}
		}
		out.end(r.Context(), nil, err)
	}
}

// works serves a command that takes long, and reports its progress. prepare returns the work,
// or refuses it.
func works[Req any](s *Server, prepare func(ctx context.Context, req Req, j *job) (work, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		req, err := request[Req](w, r)
		j := &job{}
		var do work
		if err == nil {
			do, err = prepare(r.Context(), req, j)
		}
		if err != nil {
			fail(w, err)
			return
		}
		s.run(w, r, j, do)
	}
}

// work is what a command does. Its context ends when the client goes away, or the console is
// closed.
type work func(ctx context.Context) error

// explanations give the statuses of the other rooms' errors, and what a person can do. %v stands
// for the error.
var explanations = []struct {
	err    error
	status int
	text   string
}{
	{quarantine.ErrNoDamage, http.StatusConflict, "%v"},
	{eventproof.ErrNotFound, http.StatusNotFound, "%v"},
	{timeline.ErrSetting, http.StatusNotFound, "%v"},
	{timeline.ErrSeveral, http.StatusNotFound, "%v"},
	{health.ErrNoSilence, http.StatusNotFound, "%v; 'auditrelay silence list' shows the active ones"},
	{health.ErrImpossibleSilence, http.StatusBadRequest, "%v"},
	{workspace.ErrUsage, http.StatusBadRequest, "%v"},
	{workspace.ErrChanged, http.StatusConflict, "%v"},
	{workspace.ErrUnderWay, http.StatusConflict, "%v"},
	{streaming.ErrDryRun, http.StatusConflict, "streaming.dry_run is set, so nothing is changed in the workspace; remove it, and restart the relay"},
	{streaming.ErrElsewhere, http.StatusConflict, "%v; 'auditrelay streaming apply' points it at the relay"},
	{streaming.ErrNotGenerated, http.StatusNotFound, "%v: it has no stream.relay in the configuration, so the relay has set no credential there"},
	{streaming.ErrNotDesired, http.StatusNotFound, "%v; add its stream there, and restart the relay"},
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

func fail(w http.ResponseWriter, err error) {
	err = explained(err)
	status := http.StatusInternalServerError
	var r *refusal
	if errors.As(err, &r) {
		status = r.status
	}
	writeJSON(w, status, answerError{err.Error()})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client has gone, or sees a cut answer
}
