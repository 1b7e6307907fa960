package web

import (
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strconv"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/health"
)

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
