package web

import (
	"net/http"
	"net/url"

	"github.com/auditrelay/auditrelay/internal/control/access"
)

// page is a row of the table of pages.
type page struct {
	path, title, file string
	least             access.Role
	// data is what the template shows.
	data func(*asked) (any, error)
	// under is the path of the page that this one belongs to; empty for those in the navigation.
	under string
}

// action changes something, by POST. It is first asked for its plan, which a person confirms.
type action struct {
	path, title string
	least       access.Role
	// plan changes nothing. It tells what do would do.
	plan func(*asked) (plan, error)
	do   func(*asked) (done, error)
}

// plan is a dry run.
type plan struct {
	// Says are sentences on what would happen.
	Says []string
	// Head and Rows are a table of it; Rows may be empty.
	Head []string
	Rows [][]string
	// Button is the text of what confirms, such as "Discard 3 dead letters". It is empty where there
	// is nothing to do.
	Button string
	// With are further fields that do will be asked with, apart from those of this request.
	With url.Values
}

// done is the end of an action: a message to the person, and the page to see it on.
type done struct{ message, path string }

// feed answers with something other than a page: a file, a picture, or a stream. An error counts
// only before its first byte.
type feed struct {
	path  string
	least access.Role
	serve func(*asked, http.ResponseWriter) error
}

// pages are all pages, in the order of the navigation.
var pages = []page{
	{path: "/", title: "Overview", file: "overview.html", least: access.Viewer, data: overviewOf},
	{path: changesPath, title: "Changes", file: "changes.html", least: access.Viewer, data: changesOf},
	{path: changesPath + "/{index}", title: "Entry", file: "entry.html", least: access.Viewer, data: entryOf, under: changesPath},
	{path: statesPath, title: "States", file: "states.html", least: access.Viewer, data: statesOf, under: changesPath},
	{path: policiesPath, title: "Policies", file: "policies.html", least: access.Viewer, data: policiesOf},
	{path: "/prove", title: "Prove", file: "prove.html", least: access.Auditor, data: proveOf},
}

var actions = []action{
	{path: changesPath + "/{index}/annotate", title: "Review an entry", least: access.Auditor, plan: planAnnotation, do: doAnnotation},
}

var feeds = []feed{
	{path: exportPath, least: access.Viewer, serve: exportChanges},
	{path: changesPath + "/{index}/text", least: access.Viewer, serve: entryText},
	{path: changesPath + "/{index}/mail", least: access.Viewer, serve: entryMail},
}
