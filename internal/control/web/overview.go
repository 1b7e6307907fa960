package web

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

const (
	// environmentsPerPage is how many environments the overview shows at once, and changesShown how many
	// weakening changes.
	environmentsPerPage = 60
	changesShown        = 5
)

// overview is the relay at a glance.
type overview struct {
	// All counts the environments, and Troubled those with something to do.
	All, Troubled int
	States        []stateCount
	Environments  []environment // of this page, the troubled ones first
	Chosen        int           // how many fit Words and State
	Words, State  string
	From          int // the place of the first one shown
	Earlier       string
	Later         string
	Sinks         []console.Sink
	Failing       int // of the sinks
	Journal       *journal.Usage
	Weaker        []timeline.Row
	Elsewhere     string // why the trail is not shown
	// Unreadable says of sections why they cannot be shown.
	Unreadable []string
}

type stateCount struct {
	State   health.State
	N       int
	Address string
}

// environment is one with its picture.
type environment struct {
	health.Status
	Changes string // the address of its changes
	Spark   spark
}

// troubled reports whether somebody should do something.
func troubled(s *health.Status) bool {
	return s.State != health.Flowing && s.Action != "" && !s.Silenced
}

func overviewOf(a *asked) (any, error) {
	sections, err := a.client.Status(a.ctx)
	if err != nil {
		return nil, err
	}
	o := &overview{Words: a.value("words"), State: a.value("state")}
	var all []health.Status
	for name, into := range map[string]any{"environments": &all, "sinks": &o.Sinks, "journal": &o.Journal} {
		if err := section(sections[name], into); err != nil {
			o.Unreadable = append(o.Unreadable, name+": "+err.Error())
		}
	}
	slices.Sort(o.Unreadable)
	from, _, err := indexIn(a.request.Form, "from")
	if err != nil {
		return nil, err
	}
	o.count(all)
	o.choose(all, int(from))
	for i := range o.Sinks {
		if d := o.Sinks[i].Delivery; d != nil && !d.FailingSince.IsZero() {
			o.Failing++
		}
	}
	return o, o.readWeaker(a)
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

func (o *overview) count(all []health.Status) {
	counts := map[health.State]int{}
	o.All = len(all)
	for i := range all {
		counts[all[i].State]++
		if troubled(&all[i]) {
			o.Troubled++
		}
	}
	for _, state := range slices.SortedFunc(maps.Keys(counts), worstFirst) {
		o.States = append(o.States, stateCount{state, counts[state], address("/", url.Values{"state": {string(state)}})})
	}
}

// severities ascend.
var severities = []meaning.Severity{meaning.Info, meaning.Low, meaning.Medium, meaning.High, meaning.Critical}

func worstFirst(a, b health.State) int {
	return cmp.Or(slices.Index(severities, b.Severity())-slices.Index(severities, a.Severity()), cmp.Compare(a, b))
}

// choose takes a page of the environments that fit.
func (o *overview) choose(all []health.Status, from int) {
	words := strings.ToLower(o.Words)
	var fitting []*health.Status
	for i := range all {
		s := &all[i]
		if strings.Contains(strings.ToLower(s.Project+"/"+s.Environment), words) && (o.State == "" || o.State == string(s.State)) {
			fitting = append(fitting, s)
		}
	}
	slices.SortStableFunc(fitting, func(a, b *health.Status) int {
		last := func(s *health.Status) int {
			if troubled(s) {
				return 0
			}
			return 1
		}
		return cmp.Or(last(a)-last(b), worstFirst(a.State, b.State))
	})
	o.Chosen, o.From = len(fitting), min(from, len(fitting))
	end := min(o.From+environmentsPerPage, len(fitting))
	for _, s := range fitting[o.From:end] {
		where := with(with(url.Values{}, "project", s.Project), "environment", s.Environment)
		o.Environments = append(o.Environments, environment{*s, address(changesPath, where), sparkOf(s.EventsByMinute)})
	}
	at := func(from int) string {
		return address("/", with(with(with(url.Values{}, "words", o.Words), "state", o.State), "from", strconv.Itoa(from)))
	}
	if o.From > 0 {
		o.Earlier = at(max(0, o.From-environmentsPerPage))
	}
	if end < len(fitting) {
		o.Later = at(end)
	}
}

// readWeaker reads the newest weakening changes. Another relay of the cluster may have the trail.
func (o *overview) readWeaker(a *asked) error {
	f := timeline.Filter{Direction: string(meaning.Weaker), Limit: changesShown}
	err := a.client.List(a.ctx, console.ListTrail{Filter: f}, func(r timeline.Row) error {
		o.Weaker = append(o.Weaker, r)
		return nil
	})
	slices.Reverse(o.Weaker)
	var refused *console.Refused
	if errors.As(err, &refused) {
		o.Elsewhere, err = refused.Reason, nil
	}
	return err
}

// spark is a small picture of a rate: the points of its line, and what it shows in words.
type spark struct{ Points, Area, Words string }

// The size of a spark, in units of its picture.
const (
	sparkWidth  = 120
	sparkHeight = 28
)

// sparkOf draws the numbers of events by minute, the oldest first.
func sparkOf(minutes []int64) spark {
	if len(minutes) < 2 {
		return spark{}
	}
	most, least := slices.Max(minutes), slices.Min(minutes)
	var points []string
	for i, n := range minutes {
		x := float64(sparkWidth) * float64(i) / float64(len(minutes)-1)
		y := sparkHeight - 1 - float64(sparkHeight-3)*float64(n)/float64(max(most, 1))
		points = append(points, fmt.Sprintf("%.1f,%.1f", x, y))
	}
	line := strings.Join(points, " ")
	return spark{
		Points: line, Area: fmt.Sprintf("0,%d %s %d,%d", sparkHeight, line, sparkWidth, sparkHeight),
		Words: fmt.Sprintf("Events by minute over %d minutes: at least %d, at most %d, lately %d", len(minutes), least, most, minutes[len(minutes)-1]),
	}
}
