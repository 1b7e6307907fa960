package web

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

// environmentsPerPage is how many environments a page shows at once.
const environmentsPerPage = 60

// environments are a page of all of them: those that fit its words and its state, the troubled ones
// first.
type environments struct {
	Path          string // of the page
	All, Troubled int
	States        []stateCount
	Words, State  string
	Chosen, From  int // how many fit, and the place of the first one shown
	Shown         []health.Status
	Earlier       string
	Later         string
}

type stateCount struct {
	State   health.State
	N       int
	Address string
}

// environmentsOf chooses by the fields of an address.
func environmentsOf(a *asked, path string, all []health.Status) (e environments, err error) {
	from, _, err := indexIn(a.request.Form, "from")
	if err != nil {
		return e, err
	}
	e = environments{Path: path, All: len(all), Words: a.value("words"), State: a.value("state")}
	e.count(all)
	e.choose(all, int(from))
	return e, nil
}

func (e *environments) count(all []health.Status) {
	counts := map[health.State]int{}
	for i := range all {
		counts[all[i].State]++
		if troubled(&all[i]) {
			e.Troubled++
		}
	}
	for _, state := range slices.SortedFunc(maps.Keys(counts), worstFirst) {
		e.States = append(e.States, stateCount{state, counts[state], address(e.Path, url.Values{"state": {string(state)}})})
	}
}

// troubled reports whether somebody should do something.
func troubled(s *health.Status) bool {
	return s.State != health.Flowing && s.Action != "" && !s.Silenced
}

// severities ascend.
var severities = []meaning.Severity{meaning.Info, meaning.Low, meaning.Medium, meaning.High, meaning.Critical}

func worstFirst(a, b health.State) int {
	return cmp.Or(slices.Index(severities, b.Severity())-slices.Index(severities, a.Severity()), cmp.Compare(a, b))
}

func (e *environments) choose(all []health.Status, from int) {
	words := strings.ToLower(e.Words)
	fitting := slices.DeleteFunc(slices.Clone(all), func(s health.Status) bool {
		return !strings.Contains(strings.ToLower(s.Project+"/"+s.Environment), words) || e.State != "" && e.State != string(s.State)
	})
	slices.SortStableFunc(fitting, func(a, b health.Status) int {
		if first := troubled(&a); first == troubled(&b) {
			return worstFirst(a.State, b.State)
		} else if first {
			return -1
		}
		return 1
	})
	e.Chosen, e.From = len(fitting), min(from, len(fitting))
	end := min(e.From+environmentsPerPage, len(fitting))
	e.Shown = fitting[e.From:end]
	at := func(from int) string {
		return address(e.Path, with(with(with(url.Values{}, "words", e.Words), "state", e.State), "from", strconv.Itoa(from)))
	}
	if e.From > 0 {
		e.Earlier = at(max(0, e.From-environmentsPerPage))
	}
	if end < len(fitting) {
		e.Later = at(end)
	}
}
