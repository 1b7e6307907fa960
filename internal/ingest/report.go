package ingest

import (
	"fmt"
	"net/http"
	"strings"
)

// maxNamed bounds the problems named by an answer; maxProblem bounds each, in bytes.
const (
	maxNamed   = 5
	maxProblem = 200
)

// report is the tally of a push's entries, for its answer.
type report struct {
	most     int      // entries allowed
	entries  int      // taken or not
	refused  int      // entries not taken
	problems int      // of those, and of streams without entries
	named    []string // the first problems
}

// count counts entries, and refuses the push if there are too many.
func (r *report) count(n int) error {
	if r.entries += n; r.entries > r.most {
		return tooLarge("the push has more than the allowed %d entries", r.most)
	}
	return nil
}

// refuse counts n entries as refused, and notes the problem.
func (r *report) refuse(n int, problem error) {
	r.refused += n
	r.problems++
	if len(r.named) < maxNamed {
		text := problem.Error()
		r.named = append(r.named, text[:min(len(text), maxProblem)])
	}
}

// partial is the answer if only some entries were taken.
func (r *report) partial(taken int) error {
	more := ""
	if n := r.problems - len(r.named); n > 0 {
		more = fmt.Sprintf("; and %d more", n)
	}
	return &refusal{
		status: http.StatusBadRequest, reason: "partial",
		text: fmt.Sprintf("%d entries were taken, %d were not: %s%s", taken, r.refused, strings.Join(r.named, "; "), more),
	}
}
