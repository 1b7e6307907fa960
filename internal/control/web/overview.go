package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

const (
	changesShown = 5  // weakening changes
	othersShown  = 20 // troubles
)

// overview is the relay at a glance.
type overview struct {
	environments
	Until     time.Time // the end of the last whole minute
	Verdict   console.Verdict
	Sinks     []console.Sink
	Journal   *journal.Usage
	Weaker    []timeline.Row
	Elsewhere string // why the trail is not shown
	// Unreadable says of sections why they cannot be shown.
	Unreadable []string
}

func overviewOf(a *asked) (any, error) {
	o := &overview{Until: time.Now().UTC().Truncate(time.Minute)}
	var err error
	if o.Unreadable, err = o.read(a, "/", map[string]any{"verdict": &o.Verdict, "sinks": &o.Sinks, "journal": &o.Journal}); err != nil {
		return nil, err
	}
	return o, o.readWeaker(a)
}

// Others are the troubles that are not those of environments.
func (o *overview) Others() []console.Finding {
	others := slices.DeleteFunc(slices.Clone(o.Verdict.Troubles), func(f console.Finding) bool { return f.Section == "environments" })
	return others[:min(len(others), othersShown)]
}

// SinksInTrouble is how many sinks somebody should look at.
func (o *overview) SinksInTrouble() (n int) {
	for i := range o.Sinks {
		if o.Sinks[i].Trouble() != "" {
			n++
		}
	}
	return n
}

// readWeaker reads the newest weakening changes. Another relay of the cluster may have the trail.
func (o *overview) readWeaker(a *asked) error {
	f := timeline.Filter{Direction: string(meaning.Weaker), Limit: changesShown}
	var err error
	o.Weaker, err = listed(a, f)
	slices.Reverse(o.Weaker)
	var refused *console.Refused
	if errors.As(err, &refused) {
		o.Elsewhere, err = refused.Reason, nil
	}
	return err
}

// spark is a small picture of the events by minute: its line and its area, the numbers themselves, and
// what it shows in words. Width is that of the picture in minutes, and its height is 100.
type spark struct {
	Points, Area, Numbers, Words string
	Width                        int
}

// sparkOf draws the numbers of events by minute, the oldest first.
func sparkOf(minutes []int64) spark {
	if len(minutes) < 2 {
		return spark{}
	}
	most, last := slices.Max(minutes), len(minutes)-1
	points, numbers := make([]string, len(minutes)), make([]string, len(minutes))
	for i, n := range minutes {
		points[i] = fmt.Sprintf("%d,%.0f", i, 97-94*float64(n)/float64(max(most, 1)))
		numbers[i] = strconv.FormatInt(n, 10)
	}
	line := strings.Join(points, " ")
	return spark{
		Points: line, Area: fmt.Sprintf("0,100 %s %d,100", line, last), Numbers: strings.Join(numbers, " "), Width: last,
		Words: fmt.Sprintf("events by minute over %d minutes, at least %d, at most %d, lately %d", len(minutes), slices.Min(minutes), most, minutes[last]),
	}
}

// environmentsPerPage is how many environments a page shows at once.
const environmentsPerPage = 60

// environments are a page of all of them: those that fit its words and its state, the troubled ones
// first.
type environments struct {
	console.Environments
	Path           string // of the page
	Words, State   string
	Earlier, Later string // addresses of other parts; empty where there are none
}

// read reads the environments that the fields of an address choose, and further sections of /status. It
// says of which sections the relay has only an error.
func (e *environments) read(a *asked, path string, further map[string]any) (unreadable []string, err error) {
	from, _, err := indexIn(a.request.Form, "from")
	if err != nil {
		return nil, err
	}
	e.Path, e.Words, e.State = path, a.value("words"), a.value("state")
	further["environments"] = &e.Environments
	unreadable, err = sections(a, further, &console.ChooseEnvironments{Words: e.Words, State: health.State(e.State), From: int(from), Limit: environmentsPerPage})
	at := func(from int) string {
		return address(path, with(with(with(url.Values{}, "words", e.Words), "state", e.State), "from", strconv.Itoa(from)))
	}
	if e.From > 0 {
		e.Earlier = at(max(0, e.From-environmentsPerPage))
	}
	if end := e.From + len(e.Shown); end < e.Fitting {
		e.Later = at(end)
	}
	return unreadable, err
}

// sections reads the sections of /status that into names, and says of which the relay has only an error.
func sections(a *asked, into map[string]any, choose *console.ChooseEnvironments) (unreadable []string, err error) {
	all, err := a.client.Status(a.ctx, console.AskStatus{Sections: slices.Sorted(maps.Keys(into)), Environments: choose})
	for _, name := range slices.Sorted(maps.Keys(into)) {
		if err := section(all[name], into[name]); err != nil {
			unreadable = append(unreadable, name+": "+err.Error())
		}
	}
	return unreadable, err
}

// section reads a section of /status. One that the relay cannot read has only its error.
func section(raw json.RawMessage, into any) error {
	if len(raw) == 0 {
		return nil
	}
	var failed struct {
		Error string `json:"error"`
	}
	if raw[0] == '{' && json.Unmarshal(raw, &failed) == nil && failed.Error != "" {
		return errors.New(failed.Error)
	}
	return json.Unmarshal(raw, into)
}
